"""The loss landscape around one checkpoint: its surface, shape, curvature and gradients."""

import _job
import _landscape
from toposcale.features import gradients, landscape
from toposcale.io import schemas, tables
from toposcale.landscape import LandscapeSettings

NOTHING = landscape.Description({}, {}, {}, {}, surfaces={}, profiles={}, density=None)


def main(snakemake):
    metadata = _job.provenance(snakemake)
    settings = snakemake.params.settings
    [tokenizer] = snakemake.params.tokenizer or [None]
    for step, checkpoint, files in _job.by_checkpoint(snakemake):
        where = {"model": snakemake.wildcards.model, "step": step}
        loaded, noted = _job.measured(
            snakemake, step, "landscape", _landscape.load, checkpoint, settings, tokenizer
        )
        found = measure(*loaded, snakemake) if loaded else NOTHING
        write(found, files, tables.with_warnings(metadata, noted), **where)


def measure(loaded, tokenizer, snakemake):
    """The landscape around one checkpoint."""
    settings, model = snakemake.params.settings, snakemake.wildcards.model
    losses = _landscape.probe_losses(loaded, tokenizer, snakemake.input.corpus, settings)
    parameters = dict(loaded.module.named_parameters())
    return landscape.compute_features(losses, parameters, settings_of(settings), model=model)


def write(found, files, metadata, **where):
    """Its features, diagrams and curves into the files of the rule's outputs."""
    for source, features, diagrams in (
        ("landscape", found.features, found.diagrams),
        ("gradients", found.gradient_features, found.gradient_diagrams),
    ):
        if f"{source}_features" in files:
            rows = tables.feature_rows(features, source=source, **where)
            tables.write(rows, files[f"{source}_features"], metadata)
            rows = tables.diagram_rows(diagrams, source=source, **where)
            tables.write(rows, files[f"{source}_diagrams"], metadata)
    surfaces = [
        row
        for plane, surface in found.surfaces.items()
        for row in _landscape.surface_rows(surface, plane=plane, **where)
    ]
    profiles = [
        row
        for plane, profile in found.profiles.items()
        for row in _landscape.profile_rows(profile, plane, **where)
    ]
    _landscape.write(schemas.TABLES["surfaces"], surfaces, files["surface"], metadata)
    _landscape.write(
        schemas.TABLES["densities"], density_rows(found.density, **where), files["density"], metadata
    )
    _landscape.write(schemas.TABLES["profiles"], profiles, files["profile"], metadata)


def settings_of(settings):
    clouds = gradients.Settings() if settings["gradients"] else None
    names = set(LandscapeSettings.__dataclass_fields__) & set(settings)
    measured = LandscapeSettings(**{name: settings[name] for name in names})
    others = {name: settings[name] for name in ("density_runs", "density_steps")}
    return landscape.Settings(measured, gradients=clouds, **others)


def density_rows(density, **where):
    if density is None:
        return []
    columns = ("eigenvalue", "density", "standard_error")
    return [where | dict(zip(columns, row, strict=True)) for row in zip(*density, strict=True)]


if __name__ == "__main__":
    _job.run(main, snakemake)
