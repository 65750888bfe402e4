"""The configuration of the fresh runs that confirm what a run found: the same models, with seeds that it did not have.

`python workflow/fresh.py FILE` reads `confirm.json` of the run of a configuration file, writes `confirm.yaml` beside it,
and prints its name. It prints nothing, and says why on standard error, where there is nothing to train.
"""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from config_reading import read, rebased, resolve, with_paths_from
from environment import mistakes_in_a_line
from toposcale.io.files import read_json, write_text

SUFFIX = "-confirm"
"""Suffix of the name of a run in that of its fresh run."""


def fresh_run(config: Mapping[str, Any]) -> str:
    """Return the name of the run that confirms a run: the one that the user named, or its own with `SUFFIX`."""
    return config["confirm"]["run"] or config["run"] + SUFFIX


def fresh_configuration(config: Mapping[str, Any], sources: Collection[str]) -> dict[str, Any]:
    """Return a resolved configuration with fresh seeds, which measures no more than the features of `sources`.

    Every configuration has as many runs as before. Tables of metrics are about the old runs, so they are left out.
    """
    swept, first = config["sweep"]["seeds"], config["sweep"]["first_seed"]
    in_landscape = not {"landscape", "gradients"}.isdisjoint(sources)
    switched: dict[str, dict[str, Any]] = {
        "embeddings": {"enabled": config["embeddings"]["enabled"] and "embeddings" in sources},
        "landscape": {"enabled": config["landscape"]["enabled"] and in_landscape},
        "trajectory": {"enabled": config["trajectory"]["enabled"] and "trajectory" in sources},
        "metrics": {"tables": [], "harness": ""},
        "sweep": {"seeds": _fresh(swept)} if isinstance(swept, list) else {"first_seed": first + swept},
        "confirm": {"run": ""},
    }
    return {
        **config,
        **{section: {**config[section], **keys} for section, keys in switched.items()},
        "run": config["run"] + SUFFIX,
        "seeds": _fresh(config["seeds"]),
        "models": {name: model for name, model in config["models"].items() if model["kind"] == "gpt"},
    }


def _fresh(seeds: list[int]) -> list[int]:
    """Return the same number of seeds, all above those of a list."""
    return [max(seeds) + number for number in range(1, len(seeds) + 1)]


def write(file: str) -> str:
    """Write the configuration of the fresh runs of a run and return its file; "" where nothing is to be trained.

    Raises `UserError` for a configuration that is wrong, or fresh runs whose keys are not allowed.
    """
    config = resolve(rebased(read(file), [file]))
    folder = Path("results", config["run"])
    record = read_json(folder / "confirm.json")
    confirming_run = config["confirm"]["run"]
    obstacle = f"{confirming_run} is the fresh run" if confirming_run else record["obstacle"]
    if obstacle or not record["findings"]:
        nothing_found = "the search found nothing, so there is nothing to confirm"
        reason = f"{obstacle}; nothing is trained" if record["findings"] else nothing_found
        print(f"toposcale: {reason}", file=sys.stderr)
        return ""
    fresh = fresh_configuration(config, {finding["source"] for finding in record["findings"]})
    fresh = with_paths_from(resolve(fresh), os.path.relpath(".", folder))
    path = folder / "confirm.yaml"
    write_text(path, yaml.safe_dump(fresh, sort_keys=False))
    return str(path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: fresh.py FILE")
    with mistakes_in_a_line():
        if path := write(sys.argv[1]):
            print(path)
