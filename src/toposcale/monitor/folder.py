"""Paths of the files of a monitored model, named as in the folder of a run.

The user's folder holds, for every model, `features/weights/{model}/step-*.parquet` and
`diagrams/weights/{model}/step-*.parquet` (a file a snapshot), `training/{model}/step-*.parquet` and
`metrics/monitor/{model}/step-*.parquet` (the rows since the file before), `models/{model}.json`, and the empty
`models/{model}.lock` and `.rows.lock`. The workflow lists them at every start, so nothing heavy is imported here.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toposcale.io.errors import UserError, as_user_error
from toposcale.io.files import parse_json, read_text, write_text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KINDS = ("metrics/monitor", "training", "features/weights", "diagrams/weights")
"""Kinds of files of a model, read in this order and written in the reverse one: no step is read without its features."""
_FACTS = ("n_parameters", "tokens_per_step", "final_step", "schedule", "optimizer")


def model_names(path: Path) -> list[str]:
    """Return the names of the monitored models of a folder."""
    return sorted(file.stem for file in (path / "models").glob("*.json") if _NAME.fullmatch(file.stem))


@dataclass(frozen=True)
class Folder:
    """Files of one monitored model."""

    path: Path
    model: str

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not _NAME.fullmatch(self.model):
            raise UserError(
                f"{self.model!r} cannot name a model: up to 64 letters, digits, dots, underscores and hyphens, "
                "starting with a letter or digit"
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path}: a file, where the folder of the monitor should be: name another one")

    def file(self, kind: str, step: int) -> Path:
        """Return the file of a step; `kind` is one of `KINDS`."""
        return self.path / kind / self.model / f"step-{step:08d}.parquet"

    def files(self, kind: str) -> dict[int, Path]:
        """Return the files that exist, by step, ascending."""
        files = (self.path / kind / self.model).glob("step-*.parquet")
        return dict(sorted((int(path.stem.removeprefix("step-")), path) for path in files))

    def steps(self) -> list[int]:
        """Return the steps with features, ascending. UserError: none; it names the models that have some."""
        if steps := list(self.files("features/weights")):
            return steps
        models = sorted(path.name for path in (self.path / "features/weights").glob("*"))
        content = f"it has {', '.join(models)}" if models else "no monitor has written there yet"
        raise UserError(f"{self.path}: no rows of a model named {self.model}; {content}")

    def holds_rows(self) -> bool:
        """Return whether there are rows of this model."""
        return any(self.files(kind) for kind in KINDS)

    def facts(self) -> dict[str, Any]:
        """Return the facts that a monitor records, None if unknown. UserError: no such file."""
        with as_user_error(self.facts_file, "not the facts of a monitored model", remedy="is this a monitor's folder?"):
            facts = parse_json(read_text(self.facts_file))
            return {name: facts.get(name) for name in _FACTS}

    def can_forecast(self) -> bool:
        """Return whether size, tokens of a step and last step of the training are known."""
        facts = self.facts()
        return bool(facts["n_parameters"] and facts["tokens_per_step"] and facts["final_step"])

    def write_facts(self, **facts: Any) -> None:
        """Set some of the facts; None sets nothing."""
        path = self.facts_file
        earlier = json.loads(path.read_text()) if path.exists() else {}
        stated = {name: value for name, value in facts.items() if value is not None}
        write_text(path, json.dumps(earlier | stated, indent=1, sort_keys=True) + "\n")

    @property
    def facts_file(self) -> Path:
        """Path of the JSON file with facts of the model."""
        return self.path / "models" / f"{self.model}.json"
