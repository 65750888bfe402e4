"""Contradictions, which no schema can state: keys of a configuration that are each right and do not go together."""

from collections.abc import Iterator, Mapping
from typing import Any

import sweep
from config_schema import did_you_mean, join, shown

# Ten times what a run of a week would have; planning more would fill the memory before anything was said.
MOST_CHECKPOINTS = 100_000


def contradictions(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each contradiction of a completed configuration."""
    for name, model in config["models"].items():
        where, schedule = join("models", name), model.get("schedule")
        if model["kind"] != "gpt":
            yield from _of_schedule(f"{where}.schedule", schedule, model.get("final_step"))
        elif model["d_model"] % model["n_heads"]:
            yield f"config key {where}.n_heads holds {model['n_heads']}, but must divide d_model, {model['d_model']}"
    if config["confirm"]["run"] == config["run"]:
        yield f"config key confirm.run holds {shown(config['run'])}, the run itself, but must name another one"
    swept = list(_of_sweep(config["sweep"], config["models"]))
    yield from swept or _of_training(config)


def _of_schedule(where: str, schedule: Any, final_step: int | None) -> Iterator[str]:
    """Yield the mistakes in a whole schedule; nothing where there is none, or where it is a file."""
    from toposcale.io.errors import UserError
    from toposcale.training.schedules import schedule_of

    if not isinstance(schedule, Mapping):
        return
    if final_step not in (None, schedule["steps"]):
        yield f"config key {where}.steps holds {schedule['steps']}, but final_step is {final_step}; leave one out"
    try:
        schedule_of(schedule)
    except UserError as error:
        yield f"config key {where}: {str(error).partition(': ')[2]}"


def _of_sweep(swept: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes in `sweep:`."""
    for name in swept["models"]:
        if name not in models or models[name]["kind"] != "gpt":
            hint = did_you_mean(name, models)
            yield f"config key sweep.models holds {shown(name)}, but must name models of kind gpt{hint}"
    if not isinstance(swept["seeds"], list) and swept["first_seed"] + swept["seeds"] > sweep.MOST_SEEDS:
        yield (
            f"config key sweep.first_seed holds {swept['first_seed']}, but with sweep.seeds, {swept['seeds']}, it must be "
            f"at most {sweep.MOST_SEEDS}"
        )


def _of_training(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes in the training of a configuration or model, and too many checkpoints."""
    models, swept = config["models"], config["sweep"]
    configurations = {run.configuration: run for run in sweep.runs({**swept, "seeds": 1})}
    unswept = [name for name, model in models.items() if model["kind"] == "gpt" and name not in swept["models"]]
    configurations |= {name: sweep.Run(name, name, name, 0, {}) for name in sorted(unswept)}
    copies = len(swept["seeds"]) if isinstance(swept["seeds"], list) else swept["seeds"]
    checkpoints, trained = 0, 0
    for run in configurations.values():
        training = sweep.training_of(config, run)
        of_entry = "schedule" in models[run.entry]
        where = join("models", run.entry, "schedule") if of_entry else "training.schedule"
        yield from _of_schedule(where, training.get("schedule"), training["steps"])
        repeats = len(config["seeds"]) if run.configuration in unswept else copies
        trained += repeats
        checkpoints += repeats * (2 + training["steps"] // training["checkpoint_every"])
        if training["warmup_steps"] >= training["steps"]:
            yield (
                f"config key training.warmup_steps holds {training['warmup_steps']}, "
                f"but must be less than training.steps, {training['steps']}"
                + (f" (of {run.configuration})" if training != config["training"] else "")
            )
    if checkpoints > MOST_CHECKPOINTS:
        yield (
            f"config key training.checkpoint_every holds {config['training']['checkpoint_every']}, which makes more "
            f"than {MOST_CHECKPOINTS} checkpoints of {trained} models with {config['training']['steps']} steps; "
            "make it larger"
        )
