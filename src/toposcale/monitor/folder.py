"""Where the files of a monitored model are: under the same names as in the folder of a run.

In the folder that the user names lie, for every model, `features/weights/{model}/step-*.parquet` and
`diagrams/weights/{model}/step-*.parquet` (a file a snapshot), `training/{model}/step-*.parquet` and
`metrics/monitor/{model}/step-*.parquet` (the rows up to a step since the file before), and `models/{model}.json`.
The workflow asks for these at every start, so nothing heavy is imported here.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toposcale.io.errors import UserError
from toposcale.io.files import parse_json, read_text, write_text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KINDS = ("features/weights", "diagrams/weights", "training", "metrics/monitor")
_FACTS = ("n_parameters", "tokens_per_step", "final_step", "schedule")


@dataclass(frozen=True)
class Folder:
    """Where the rows of one monitored model are."""

    path: Path
    model: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.model):
            raise UserError(
                f"{self.model!r} cannot name a model: up to 64 letters, digits, dots, underscores and hyphens, "
                "starting with a letter or digit"
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path}: a file, where the folder of the monitor should be: name another one")

    def file(self, kind: str, step: int) -> Path:
        """The file of a step; `kind` is one of features/weights, diagrams/weights, training, metrics/monitor."""
        return self.path / kind / self.model / f"step-{step:08d}.parquet"

    def files(self, kind: str) -> dict[int, Path]:
        """The files that are there, by step, ascending."""
        files = (self.path / kind / self.model).glob("step-*.parquet")
        return dict(sorted((int(path.stem.removeprefix("step-")), path) for path in files))

    def steps(self) -> list[int]:
        """Steps with features, ascending. UserError: none, with the models that the folder does have."""
        if steps := list(self.files("features/weights")):
            return steps
        others = sorted(path.name for path in (self.path / "features/weights").glob("*"))
        there = f"it has {', '.join(others)}" if others else "no monitor has written there yet"
        raise UserError(f"{self.path}: no rows of a model named {self.model}; {there}")

    def holds_rows(self) -> bool:
        """Whether anything was ever written of this model."""
        return any(self.files(kind) for kind in KINDS)

    def facts(self) -> dict[str, Any]:
        """n_parameters, tokens_per_step, final_step and schedule, None where it is not known. UserError: no such file."""
        path = self.facts_file
        try:
            facts = parse_json(read_text(path))
            return {name: facts.get(name) for name in _FACTS}
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(f"{path}: not the facts of a monitored model; is this a monitor's folder?") from error

    def write_facts(self, **facts: Any) -> None:
        """Set some of n_parameters, tokens_per_step, final_step, and whatever else is worth knowing; None sets nothing."""
        path = self.facts_file
        earlier = json.loads(path.read_text()) if path.exists() else {}
        stated = {name: value for name, value in facts.items() if value is not None}
        write_text(path, json.dumps(earlier | stated, indent=1, sort_keys=True) + "\n")

    @property
    def facts_file(self) -> Path:
        """What is known of the model, as JSON."""
        return self.path / "models" / f"{self.model}.json"
