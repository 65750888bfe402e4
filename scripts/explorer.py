"""Write the explorer: a page with a slider over the checkpoints for diagrams, merge trees, surfaces and the loss."""

import _job
import _tables
from toposcale.io import files, schemas, tables
from toposcale.pages import explorer


@_job.script
def main(snakemake):
    inputs = snakemake.input
    features = _tables.read_features(inputs.features)
    diagrams = tables.gather(schemas.TABLES["diagrams"], inputs.diagrams).to_pandas(strings_to_categorical=True)
    page = explorer.explorer(
        run=snakemake.params.run,
        models=_tables.read(inputs.models),
        metrics=_tables.read(inputs.metrics),
        features=features,
        # Revisions that the tables leave out are left out here as well.
        diagrams=diagrams.merge(features[["model", "step"]].drop_duplicates()),
        surfaces=_tables.read(inputs.surfaces) if inputs.surfaces else None,
    )
    files.write_text(snakemake.output[0], page)
