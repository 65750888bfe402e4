"""The figures of one subject, from the tables that they read, as SVG and PNG."""

import frames
import job
from toposcale import figures
from toposcale.figures import style

READERS = {"training": frames.read_training, "features": frames.read_features}


def main(snakemake):
    tables = {
        name: READERS.get(name, frames.read)(snakemake.input[name])
        for name in {table for figure in snakemake.params.figures for table in figures.FIGURES[figure].tables}
    }
    for name in snakemake.params.figures:
        figure = figures.load(name)(**{table: tables[table] for table in figures.FIGURES[name].tables})
        style.save(figure, snakemake.output[name], dpi=snakemake.params.dpi)


if __name__ == "__main__":
    job.run(main, snakemake)
