"""Run one analysis of `toposcale.analysis` or `toposcale.reproduction`: read its tables, call it, write its results."""

import _job
import _tables
from toposcale import analysis, reproduction
from toposcale.io import schemas


@_job.script
def main(snakemake):
    chosen = (analysis.ANALYSES | reproduction.ANALYSES)[snakemake.params.analysis]
    frames = _tables.read_inputs(snakemake, chosen.reads)
    results = chosen.load()(**frames, **snakemake.params.settings)
    # A run of loss curves has no features to analyse; a table that is left out is empty.
    empty = {table: schemas.TABLES[table].frame([]) for table in chosen.makes}
    _tables.write(snakemake, empty | results)
