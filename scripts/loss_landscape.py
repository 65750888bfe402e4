"""The loss landscape around one checkpoint: its surface, shape, curvature and gradients."""

import job
import landscape_stage as stage
from toposcale import gradients, tables
from toposcale.landscape import describe


def main(snakemake):
    settings, wildcards, output = snakemake.params.settings, snakemake.wildcards, snakemake.output
    where = {"model": wildcards.model, "step": int(wildcards.step)}
    path, model = stage.load(snakemake.input.checkpoint, settings)
    losses = stage.probe_losses(path, model, snakemake.input.corpus, settings)
    parameters = dict(model.module.named_parameters())
    found = describe.describe(losses, parameters, settings_of(settings), **where)
    metadata = job.provenance(snakemake)
    for source, features, diagrams in (
        ("landscape", found.features, found.diagrams),
        ("gradients", found.gradient_features, found.gradient_diagrams),
    ):
        if features:
            rows = tables.feature_rows(features, source=source, **where)
            tables.write(rows, output[f"{source}_features"], metadata)
            rows = tables.diagram_rows(diagrams, source=source, **where)
            tables.write(rows, output[f"{source}_diagrams"], metadata)
    stage.write(tables.SURFACES, stage.surface_rows(found.surface, **where), output.surface, metadata)
    stage.write(tables.DENSITIES, density_rows(found.density, **where), output.density, metadata)
    profile = stage.profile_rows(found.profile, "top eigenvector", **where)
    stage.write(tables.PROFILES, profile, output.profile, metadata)


def settings_of(settings):
    clouds = None
    if settings["gradients"]:
        clouds = gradients.Settings(settings["max_points"], settings["max_dimension"], settings["seed"])
    names = set(describe.Settings.__dataclass_fields__) - {"gradients", "graphs"}
    chosen = {name: settings[name] for name in names}
    return describe.Settings(graphs=tuple(settings["graphs"]), gradients=clouds, **chosen)


def density_rows(density, **where):
    if density is None:
        return []
    columns = ("eigenvalue", "density", "standard_error")
    return [where | dict(zip(columns, row, strict=True)) for row in zip(*density, strict=True)]


if __name__ == "__main__":
    job.run(main, snakemake)
