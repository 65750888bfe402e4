"""Trainings: entries of `models:`, and sweeps of them over some settings, under names that say what they are."""

import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

NAMES = {
    "learning_rate": "lr",
    "weight_decay": "wd",
    "batch_size": "bs",
    "steps": "steps",
    "warmup_steps": "warmup",
    "schedule": "",
    "data_fraction": "data",
}
"""Keys that can be swept, and the prefixes of their values in a run's name."""

SIZES = ("learning_rate", "weight_decay", "batch_size", "warmup_steps", "data_fraction")
"""Swept keys that are numbers in the models table."""

MAX_SEEDS = 1000


class Run(NamedTuple):
    """One training: its name, entry of `models:`, configuration, seed, and how it is trained."""

    name: str
    entry: str
    configuration: str
    seed: int
    training: Mapping[str, Any]


def runs(config: Mapping[str, Any]) -> Iterator[Run]:
    """Yield every training of a configuration: its models of kind gpt once a seed, those that are swept as `sweep:` says.

    A run of a sweep is named after all swept keys, those with one value too: a value that is added renames nothing.
    """
    sweep = config["sweep"]
    for index, seed in enumerate(config["seeds"]):
        for entry, model in config["models"].items():
            if model["kind"] == "gpt" and entry not in sweep["models"]:
                # The first seed keeps the plain name: adding a seed retrains nothing.
                name = entry if index == 0 else f"{entry}.seed{seed}"
                yield Run(name, entry, entry, seed, _training(config, entry, {}))
    swept = {key: sweep[key] for key in NAMES if sweep[key]}
    for entry in sweep["models"]:
        for values in itertools.product(*swept.values()):
            chosen = dict(zip(swept, values, strict=True))
            parts = [NAMES[key] + (f"{value:.12g}" if key != "schedule" else value) for key, value in chosen.items()]
            configuration, training = ".".join([entry, *parts]), _training(config, entry, chosen)
            for seed in seeds_of(configuration, sweep["seeds"], sweep["first_seed"]):
                yield Run(f"{configuration}.seed{seed}", entry, configuration, seed, training)


def seeds_of(configuration: str, seeds: int | list[int], first: int) -> list[int]:
    """Return the seeds of a configuration: those of a list, or `seeds` of its own, from number `first` on.

    Runs with one seed read the same text in the same order, so the configurations of a sweep would not be independent.
    """
    if isinstance(seeds, list):
        return seeds
    start = zlib.crc32(configuration.encode()) % (2**32 // MAX_SEEDS) * MAX_SEEDS + first
    return [start + number for number in range(seeds)]


def _training(config: Mapping[str, Any], entry: str, swept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run: `training:`, then its entry of `models:`, then swept values; its schedule is whole."""
    model = config["models"][entry]
    training = {**config["training"], **model.get("training", {})}
    schedule = model.get("schedule", training.get("schedule"))
    if "schedule" in swept:
        schedule = {**(schedule if isinstance(schedule, Mapping) else {}), "shape": swept["schedule"]}
    training |= swept
    if isinstance(schedule, Mapping):
        schedule = trained_schedule(schedule, training)
    return training if schedule is None else {**training, "schedule": schedule}


def trained_schedule(stated: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schedule of a model that is trained here, with missing fields from `training:`."""
    default = {"shape": "cosine", "peak": training["learning_rate"], "final": 0.0}
    return {**default, "warmup_steps": training["warmup_steps"], "steps": training["steps"], **stated}
