"""Measure the loss landscape around checkpoints of one model: surface, topology, curvature and gradients."""

import _job
import _landscape
from _checkpoints import noted_if_missing
from toposcale.features import landscape
from toposcale.io import schemas, tables
from toposcale.training import corpus


def measure(checkpoint, tokenizer_folder, text, settings):
    """Return the description of the landscape around one checkpoint."""
    loaded, tokenizer = _landscape.load(checkpoint, settings, tokenizer_folder)
    losses = _landscape.probe_losses(loaded, tokenizer, text, settings)
    fields = landscape.LandscapeFeatureSettings.__dataclass_fields__
    feature_settings = landscape.LandscapeFeatureSettings(
        **{name: settings[name] for name in fields if name in settings}
    )
    return landscape.compute_features(losses, dict(loaded.module.named_parameters()), feature_settings)


def rows_of(description, **identifiers):
    """Return the rows of one checkpoint by output of the rule."""
    rows = {}
    for source, features, diagrams in (
        ("landscape", description.features, description.diagrams),
        ("gradients", description.gradient_features, description.gradient_diagrams),
    ):
        rows[f"{source}_features"] = tables.feature_rows(features, source=source, **identifiers)
        rows[f"{source}_diagrams"] = tables.diagram_rows(diagrams, source=source, **identifiers)
    columns = ("eigenvalue", "density")
    densities = [
        identifiers | dict(zip(columns, row, strict=True)) for row in zip(*(description.density or ()), strict=True)
    ]
    surfaces = [
        row
        for plane, surface in description.surfaces.items()
        for row in _landscape.surface_rows(surface, plane=plane, **identifiers)
    ]
    profiles = [
        row
        for plane, profile in description.profiles.items()
        for row in _landscape.profile_rows(profile, plane, **identifiers)
    ]
    other_rows = {"surfaces": surfaces, "densities": densities, "profiles": profiles}
    return rows | {name: tables.from_rows(schemas.TABLES[name], part) for name, part in other_rows.items()}


@_job.script
def main(snakemake):
    text = corpus.load_corpus(snakemake.input.corpus)
    tokenizer = next(iter(snakemake.params.tokenizer), None)
    rows, warning_rows = {name: [] for name, _ in snakemake.output.items()}, []
    for step, file in zip(snakemake.params.steps, snakemake.input.checkpoints, strict=True):
        with noted_if_missing(snakemake, "landscape", step, file, warning_rows):
            description = measure(file, tokenizer, text, snakemake.params.settings)
            for name, table in rows_of(description, model=snakemake.wildcards.model, step=step).items():
                if name in rows:
                    rows[name].append(table)
    _job.write(snakemake, rows, warning_rows)
