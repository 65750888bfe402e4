"""Project the training trajectory of one model to its principal plane; profile the loss along its segments."""

import logging
from itertools import pairwise

import _job
import _landscape
from toposcale.features.landscape import profile_of
from toposcale.io import schemas, tables
from toposcale.landscape import surface
from toposcale.training import corpus


@_job.script
def main(snakemake):
    params, name = snakemake.params, snakemake.wildcards.model
    settings, text = params.settings, corpus.load_corpus(snakemake.input.corpus)
    model, tokenizer = _landscape.load(snakemake.input.checkpoints[-1], settings)
    parameters = dict(model.module.named_parameters())
    points = {
        step: _landscape.weights_like(parameters, checkpoint)
        for step, checkpoint in zip(params.steps, snakemake.input.checkpoints, strict=True)
    }
    loss = _landscape.probe_losses(model, tokenizer, text, settings)[0]
    last = params.steps[-1]
    try:
        plane = surface.principal_plane(list(points.values()))
    except ValueError as error:
        logging.warning("the trajectory has no principal plane: %s", error)
        grid, trajectory = [], []
    else:
        path_losses = surface.path_surface(loss, points[last], plane, steps=settings["path_resolution"])
        grid = _landscape.surface_rows(path_losses, model=name, step=last)
        columns = zip(points, plane.coordinates.tolist(), plane.distance.tolist(), strict=True)
        trajectory = [
            {"model": name, "step": step, "x": x, "y": y, "distance": distance} for step, (x, y), distance in columns
        ]
    profiles = []
    for earlier, later in pairwise(params.profiled):
        line = surface.segment_losses(loss, points[earlier], points[later], steps=settings["resolution"])
        identifiers = {"model": name, "step": later}
        profiles += _landscape.profile_rows(profile_of(line), "from the checkpoint before", **identifiers)
    rows_of = {"path_surfaces": grid, "trajectories": trajectory, "profiles": profiles}
    parts = {name: [tables.from_rows(schemas.TABLES[name], rows)] for name, rows in rows_of.items()}
    _job.write(snakemake, parts)
