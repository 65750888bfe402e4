"""Run one analysis of `toposcale.analysis`: read its tables, call it, write its results."""

import _job
import _tables
from toposcale.analysis import ANALYSES, load
from toposcale.io import schemas


@_job.script
def main(snakemake):
    name = snakemake.params.analysis
    analysis = ANALYSES[name]
    frames = _tables.read_inputs(snakemake, analysis.reads)
    results = load(name)(**frames, **snakemake.params.settings)
    # A run of loss curves alone has no features to analyse; a table that is left out is empty.
    empty = {table: schemas.TABLES[table].frame([]) for table in analysis.makes}
    _tables.write(snakemake, empty | results)
