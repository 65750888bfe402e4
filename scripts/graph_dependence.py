"""How much each feature of the landscape depends on the choice of graph, beside its other spreads."""

import frames
import job
from toposcale import tables
from toposcale.landscape.graph_dependence import graph_dependence


def main(snakemake):
    rows = tables.gather(tables.FEATURES, snakemake.input.features)
    rows = tables.without(rows, job.duplicates(snakemake.input.left_out))
    table = graph_dependence(rows.to_pandas(), snakemake.params.graphs)
    frames.write(snakemake, graph_dependence=table)


if __name__ == "__main__":
    job.run(main, snakemake)
