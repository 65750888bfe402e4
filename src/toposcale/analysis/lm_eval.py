"""Read scores of lm-evaluation-harness, from JSON files of its older and newer layouts, as rows of the metrics table."""

import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

from toposcale.checkpoints.step_names import steps_by_name
from toposcale.io.errors import UserError, as_user_error
from toposcale.io.files import parse_json, read_text

logger = logging.getLogger(__name__)


class Evaluated(NamedTuple):
    """Repository of a model in the result files, and the pattern of its revisions with `{step}`."""

    repo: str | None = None
    revisions: str = "step{step}"


def result_files(folder_or_glob: str | Path) -> list[Path]:
    """Return the sorted JSON files of a folder, at any depth, or of a glob (`**` for any depth)."""
    if Path(folder_or_glob).is_dir():
        return sorted(Path(folder_or_glob).rglob("*.json"))
    return sorted(path for path in map(Path, glob(str(folder_or_glob), recursive=True)) if path.is_file())


def read_results(
    folder_or_glob: str | Path, models: Mapping[str, Evaluated], *, tasks: Sequence[str] = ("*",)
) -> list[dict[str, Any]]:
    """Return the sorted rows (model, step, metric, value) of all `result_files` that concern one of `models`.

    A file belongs to the model whose repository it names; otherwise to the model whose name, or last part of the
    repository, equals the file's folder or the last part of the repository that it names; the two must agree.
    Versions in names are ignored: pythia-v1.1-70m is pythia-70m. The metric is `{task}.{measure}`, as in `arc_easy.acc`;
    the filter of the newer layout follows unless it is `none`, and `5-shot` if examples were given.
    `tasks` are globs of the tasks to read. Standard errors are left out. Raise UserError if there is no such folder, no
    file of any of the models, a file of another layout or without a step, or a metric with two values.
    """
    if not (files := result_files(folder_or_glob)):
        raise UserError(
            f"{folder_or_glob}: no such folder of lm-evaluation-harness results, and no file matches it as a pattern"
        )
    values: dict[tuple[str, int, str], tuple[float, Path]] = {}
    for file in files:
        results = _load(file)
        if (model := _model_of(results, file, models)) is None:
            logger.info("%s: not about a model of this run, left out", file)
            continue
        step = _step_of(results, file, models[model].revisions)
        for metric, value in scores(results, tasks=tasks).items():
            if math.isnan(value):
                warnings.warn(f"{file}: {metric} is NaN", RuntimeWarning, stacklevel=2)
            earlier, origin = values.setdefault((model, step, metric), (value, file))
            if earlier != value and not (math.isnan(earlier) and math.isnan(value)):
                raise UserError(f"{file}: {metric} of {model} at step {step} is {value}, but {earlier} in {origin}")
    if not values:
        raise UserError(f"{folder_or_glob}: no scores of {', '.join(models)} in the {len(files)} JSON files")
    return [
        {"model": model, "step": step, "metric": metric, "value": value}
        for (model, step, metric), (value, _) in sorted(values.items())
    ]


def scores(results: Mapping[str, Any], *, tasks: Sequence[str] = ("*",)) -> dict[str, float]:
    """Return the scores in the content of one file by metric name, without standard errors."""
    by_metric: dict[str, float] = {}
    # Groups of tasks have an entry of their own in the newer layout, often in both sections.
    for section in ("groups", "results"):
        for task, measures in (results.get(section) or {}).items():
            if any(fnmatchcase(task, glob) for glob in tasks):
                stated = (results.get("n-shot") or {}).get(task, (results.get("config") or {}).get("num_fewshot"))
                shots = f".{stated}-shot" if isinstance(stated, int) and stated > 0 else ""
                by_metric |= {f"{task}.{name}{shots}": value for name, value in _measures(measures)}
    return by_metric


def _measures(measures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in measures.items():
        name, _, filtered = key.partition(",")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Beside scores stand an alias, a sample count and "N/A".
        if number and not name.endswith("_stderr") and name not in ("sample_len", "samples"):
            yield (f"{name}.{filtered}" if filtered not in ("", "none") else name), float(value)


def _load(file: Path) -> dict[str, Any]:
    with as_user_error(file, "not readable JSON", (OSError, ValueError)):
        results = parse_json(read_text(file))
    sections = [results.get(key) for key in ("results", "config")] if isinstance(results, dict) else []
    if not sections or not all(isinstance(section, dict) for section in sections):
        raise UserError(f"{file}: not a result of lm-evaluation-harness: no `results` and `config`")
    if not all(isinstance(measures, dict) for measures in results["results"].values()):
        raise UserError(f"{file}: not a result of lm-evaluation-harness: a task without named scores")
    return results


def _model_arguments(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of the model (`pretrained`, `revision` ...): comma-separated, or a mapping in newer files."""
    arguments = results["config"].get("model_args") or {}
    if isinstance(arguments, Mapping):
        return {str(key): str(value) for key, value in arguments.items()}
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in arguments.split(","))}


def _model_of(results: Mapping[str, Any], file: Path, models: Mapping[str, Evaluated]) -> str | None:
    repo = _model_arguments(results).get("pretrained") or str(results.get("model_name") or "")
    exact = [name for name, model in models.items() if model.repo is not None and model.repo == repo]
    by_folder, by_name = (
        [name for name, model in models.items() if called in (_plain(name), _plain(model.repo or name))]
        for called in map(_plain, (file.parent.name, repo))
    )
    # A local path does not identify the model; a name, or a repository with its owner, does.
    is_name = repo and repo.count("/") < 2 and repo[0] not in "/.~"
    if is_name and by_folder and not {*exact, *by_name} & {*by_folder}:
        raise UserError(
            f"{file}: it names the model {repo}, but lies in the folder of {by_folder[0]}; move it to a folder of its own"
        )
    return next(iter(exact + by_folder + by_name), None)


def _plain(name: str) -> str:
    """Return the last part of a repository's name, without a version."""
    return re.sub(r"[-_]v\d+(\.\d+)*(?=[-_]|$)", "", name.rpartition("/")[2])


def _step_of(results: Mapping[str, Any], file: Path, revisions: str) -> int:
    stated = [_model_arguments(results).get("revision"), results["config"].get("model_revision")]
    names = [str(name) for name in stated if name]
    for name in names:
        if steps := steps_by_name(revisions, [name]):
            return next(iter(steps))
    revisions_text = " and ".join(dict.fromkeys(names)) or "none"
    raise UserError(
        f"{file}: its revision ({revisions_text}) does not contain the step; expected a name like {revisions}"
    )
