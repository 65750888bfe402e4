"""The diagrams of one model, checkpoint after checkpoint: how far they move, and each as vectors of one length."""

import pyarrow as pa

import job
from toposcale import evolution, tables, vectors


def main(snakemake):
    diagrams = [tables.read(tables.DIAGRAMS, path) for path in snakemake.input]
    where = {"model": snakemake.wildcards.model, "source": snakemake.wildcards.source}
    steps, metadata = snakemake.params.steps, job.provenance(snakemake)
    moved = evolution.consecutive_distances(diagrams)
    parts = [tables.FEATURES.schema.empty_table()]
    parts += [
        tables.feature_rows(named, step=step, **where) for step, named in zip(steps[1:], moved, strict=True)
    ]
    rows = tables.sort(tables.FEATURES, pa.concat_tables(parts))
    tables.write(rows, snakemake.output.distances, metadata)
    entries = [
        {**where, "step": step, "vector": name, "index": index, "value": value}
        for step, diagram in zip(steps, diagrams, strict=True)
        for name, vector in vectors.diagram_vectors(diagram).items()
        for index, value in enumerate(vector.tolist())
    ]
    tables.write(tables.from_rows(tables.VECTORS, entries), snakemake.output.vectors, metadata)


if __name__ == "__main__":
    job.run(main, snakemake)
