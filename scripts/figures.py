"""The figures of one subject, from the tables that they read, as SVG and PNG."""

import _job
import _tables
from toposcale import figures
from toposcale.figures import style


def main(snakemake):
    names = snakemake.params.figures
    tables = _tables.read_inputs(
        snakemake, {table for name in names for table in figures.FIGURES[name].tables}
    )
    for name in names:
        figure = figures.load(name)(**{table: tables[table] for table in figures.FIGURES[name].tables})
        style.save(figure, snakemake.output[name], dpi=snakemake.params.dpi)


if __name__ == "__main__":
    _job.run(main, snakemake)
