"""Sweeps: every combination of some settings of the training, each with every seed, under names that say what they are."""

from __future__ import annotations

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
"""What can be swept, and what stands before its value in a run's name."""

MOST_SEEDS = 1000


class Run(NamedTuple):
    """One run of a sweep: its name, the entry of `models:` it is made from, its cell, its seed, and what is swept."""

    name: str
    entry: str
    cell: str
    seed: int
    training: Mapping[str, Any]


def runs(sweep: Mapping[str, Any]) -> Iterator[Run]:
    """Every run of the section `sweep:`, cell by cell.

    A cell is named after all keys of the section, those with one value too: a value that is added renames nothing.
    """
    swept = {key: sweep[key] for key in NAMES if sweep[key]}
    for entry in sweep["models"]:
        for values in itertools.product(*swept.values()):
            training = dict(zip(swept, values, strict=True))
            cell = ".".join([entry, *(NAMES[key] + _text(value) for key, value in training.items())])
            for seed in seeds_of(cell, sweep["seeds"]):
                yield Run(f"{cell}.seed{seed}", entry, cell, seed, training)


def seeds_of(cell: str, seeds: int | list[int]) -> list[int]:
    """The seeds of a cell: those of a list, or so many of its own that no other cell has.

    Runs with one seed read the same text in the same order, which would tie the cells of a sweep to one another.
    """
    if isinstance(seeds, list):
        return seeds
    first = zlib.crc32(cell.encode()) % (2**32 // MOST_SEEDS) * MOST_SEEDS
    return [first + number for number in range(seeds)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"
