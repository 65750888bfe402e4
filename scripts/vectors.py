"""Vectorize the persistence diagrams of the weights for the forecasts."""

import _job
from toposcale.features.vectors import diagram_vectors
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    rows = []
    for path in snakemake.input.parts:
        for _, diagrams in tables.by_step(tables.read(schemas.TABLES["diagrams"], path)):
            identifiers = {name: diagrams[name][0].as_py() for name in ("model", "step", "source")}
            rows += [
                {**identifiers, "vector": name, "index": index, "value": value}
                for name, vector in diagram_vectors(diagrams).items()
                for index, value in enumerate(vector.tolist())
            ]
    tables.write(tables.from_rows(schemas.TABLES["vectors"], rows), snakemake.output[0], _job.provenance(snakemake))
