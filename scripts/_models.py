"""A row of the models table from what the configuration says of a model and what its files tell."""

from pathlib import Path

from toposcale import checkpoints
from toposcale.io.errors import UserError
from toposcale.training.schedules import schedule_of


def row(name, facts, *, weights=None, curve=None, last_logged=None):
    """What is given counts, then what the files of the model tell; the rest stays unknown.

    weights: a checkpoint of it. curve: the user's file with its losses: beside weights, or as JSON, the state of a Trainer.
    last_logged: the last step of its training log.
    """
    known = {key: value for key, value in facts.items() if value is not None}
    last = [known.pop("last_checkpoint", None), last_logged]
    if schedule := known.pop("schedule", None):
        last = [schedule_of(schedule).steps]
    end = known.get("final_step")
    if curve is not None and end and last_logged and last_logged > 1.01 * end:
        raise UserError(
            f"models.{name}.final_step holds {end:,}, but the log goes to step {last_logged:,} ({curve})"
        )
    told = {"final_step": max((step for step in last if step is not None), default=None)}
    checkpoint = None if weights is None else checkpoints.locate(weights)
    if checkpoint is not None:
        told["n_parameters"] = checkpoints.count_parameters(checkpoint)
    if curve is not None and (checkpoint or Path(curve).suffix == ".json"):
        stated = checkpoints.trainer_facts(Path(curve), checkpoint)
        told |= {key: value for key, value in stated.items() if value}
    return {"model": name} | told | known
