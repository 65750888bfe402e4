"""The loss landscape around one checkpoint: its surface, shape, curvature and gradients."""

import _job
import _landscape
from toposcale.features import gradients, landscape
from toposcale.io import schemas, tables
from toposcale.landscape import LandscapeSettings

NOTHING = landscape.Description({}, {}, {}, {}, surfaces={}, profiles={}, density=None)


def main(snakemake):
    settings = snakemake.params.settings
    [tokenizer] = snakemake.params.tokenizer or [None]
    rows, noted = {name: [] for name, _ in snakemake.output.items()}, []
    for step, loaded in _job.measured(snakemake, "landscape", noted, _landscape.load, settings, tokenizer):
        where = {"model": snakemake.wildcards.model, "step": step}
        found = measure(*loaded, snakemake) if loaded else NOTHING
        for name, own in rows_of(found, **where).items():
            if name in rows:
                rows[name].append(own)
    _job.write(snakemake, rows, noted)


def measure(loaded, tokenizer, snakemake):
    """The landscape around one checkpoint."""
    settings, model = snakemake.params.settings, snakemake.wildcards.model
    losses = _landscape.probe_losses(loaded, tokenizer, snakemake.input.corpus, settings)
    parameters = dict(loaded.module.named_parameters())
    return landscape.compute_features(losses, parameters, settings_of(settings), model=model)


def rows_of(found, **where):
    """The rows of one checkpoint, by the rule's outputs."""
    rows = {}
    for source, features, diagrams in (
        ("landscape", found.features, found.diagrams),
        ("gradients", found.gradient_features, found.gradient_diagrams),
    ):
        rows[f"{source}_features"] = tables.feature_rows(features, source=source, **where)
        rows[f"{source}_diagrams"] = tables.diagram_rows(diagrams, source=source, **where)
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
    return rows | {
        "surfaces": tables.from_rows(schemas.TABLES["surfaces"], surfaces),
        "densities": tables.from_rows(schemas.TABLES["densities"], density_rows(found.density, **where)),
        "profiles": tables.from_rows(schemas.TABLES["profiles"], profiles),
    }


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
