"""One analysis of `toposcale.analysis`, by name: read its tables, call it, write what it makes."""

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
    # In a run of loss curves alone there is no feature to analyse: a table that is left out is empty.
    nothing = {table: schemas.TABLES[table].frame([]) for table in analysis.makes}
    _tables.write(snakemake, nothing | results)
