"""Input of a training run: its loss curve, the facts that users state, and the run that both make."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from toposcale.forecasting.amounts import text_of
from toposcale.forecasting.logs import loss_curves, trainer_states
from toposcale.forecasting.logs.loss_curves import LOG, LossCurve, of_columns, read
from toposcale.forecasting.logs.names import PERPLEXITY
from toposcale.forecasting.logs.patterns import compiled
from toposcale.forecasting.runs.facts import (
    FACTS,
    SHAPE_FIELDS,
    UNKNOWN,
    CountParameters,
    FactKind,
    Provenance,
    RunFacts,
    option,
)
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.schedules import SHAPES, Schedule, ScheduleTable, schedule_of
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import UserError, did_you_mean, listed
from toposcale.io.files import read_json

CurveInput = str | Path | Mapping[str, Any] | Any
"""A file, a folder, columns by name such as a data frame, a series of losses by step, (n, 2) steps and losses, or rows."""

MIN_RATIO = 1e-3
"""Without a peak, a minimum rate is a ratio to it; a value below this bound must be a rate."""

NEEDED = {
    "n_parameters": "n_parameters{of} (--n-parameters)",
    "tokens_per_step": "tokens_per_step (--tokens-per-step)",
    "final_step": "schedule (--schedule), or steps (--steps), the last step of the run",
}
"""Facts that an advice needs, and how they are stated; of: the model whose adapter the weights are."""


@dataclass(frozen=True)
class RunInput:
    """A loss curve, and what its user states about the run; `stated` has the facts of `StatedFacts` that are not None.

    A curve of None has not started; without `count_parameters` weights are left unread. UserError: a fact is out of bounds.
    """

    curve: CurveInput | None
    name: str
    stated: Mapping[str, Any] = field(default_factory=dict)
    count_parameters: CountParameters | None = None

    def __post_init__(self) -> None:
        text_of(self.name, "name", "25M")
        _ = self._values, self._schedule  # what is out of bounds is refused before a file is read

    @cached_property
    def _values(self) -> dict[str, Any]:
        """Stated facts as numbers and names, None where not stated."""
        values = {name: fact.parse(self.stated.get(name), name) for name, fact in FACTS.items()}
        if (column := values["loss_column"]) and PERPLEXITY.search(column.lower()):
            raise UserError(
                f"loss_column (--loss-column): {column} is a perplexity by its name; name the column of the loss in nats "
                "per token, or make one of the logarithm of the perplexity"
            )
        if values["pattern"] is not None:
            compiled(values["pattern"])
        return values

    @cached_property
    def facts(self) -> RunFacts:
        """Facts that are stated."""
        schedule = self._schedule
        of_run = without_none({name: self._values[name] for name, fact in FACTS.items() if fact.kind is FactKind.RUN})
        if n_parameters := of_run.get("n_parameters"):
            of_run["n_parameters"] = round(n_parameters)
        return RunFacts(self.name, final_step=schedule.final_step, warmup_steps=schedule.warmup_steps, **of_run)

    @cached_property
    def _schedule(self) -> "_StatedSchedule":
        """Schedule that is stated, or only its end and warm-up."""
        values = self._values
        of_run = without_none({name: values[name] for name in ("steps", "warmup_steps")})
        return _stated_schedule(values["schedule"], of_run)

    @property
    def _reader_arguments(self) -> dict[str, Any]:
        """Options of the reader of logs."""
        return {name: self._values[name] for name, fact in FACTS.items() if fact.kind is FactKind.LOG}

    @cached_property
    def losses(self) -> LossCurve:
        """Curve of the file, the folder or the columns, which is read once; of a run that has not started an empty one."""
        curve = self.curve
        if curve is None:
            return LossCurve(dict.fromkeys(("step", *LOG), np.empty(0)))
        if isinstance(curve, str | Path) and str(curve):
            log = log_of(Path(curve))
            losses = read(log, **self._reader_arguments)
            if log != Path(curve):
                losses = losses._replace(notes=(f"the log of the folder is {log}", *losses.notes))
            _refuse_without_losses(losses)
            _refuse_other_units(losses, losses.trainer.path if losses.trainer else log)
        else:
            columns = _columns_by_name(curve)
            of_columns_only = {name: value for name, value in self._reader_arguments.items() if name != "pattern"}
            losses = of_columns({str(key): columns[key] for key in columns}, **of_columns_only)
            _refuse_other_units(losses, "the loss curve")
        return losses

    @property
    def known_facts(self) -> RunFacts:
        """Facts that are stated, or that the curve or the weights with it have."""
        return self.facts.merged(_logged_facts(self.losses, self.count_parameters))

    def run_as_read(self, assumed: RunFacts = UNKNOWN) -> TrainingRun:
        """Return the run of the curve, whatever is unknown; without a known end it ends at its last row."""
        last = int(self.losses.columns["step"].max(initial=1))
        return self.training_run(assumed.with_provenance(Provenance.ASSUMED, final_step=last), required=())

    def training_run(
        self,
        assumed: RunFacts = UNKNOWN,
        default: LearningRateSchedule | None = None,
        required: Sequence[str] = tuple(NEEDED),
    ) -> TrainingRun:
        """Return the run of the curve; UserError names what is missing, and what was left out of the curve.

        assumed: facts where neither the user nor the log states them. default: schedule, with its end, if none is stated.
        required: facts without which there is an error; of the others only the last step has to be known.
        """
        losses = self.losses
        try:
            facts = self.known_facts.merged(assumed)
            if default is not None:
                facts = facts.with_provenance(Provenance.ASSUMED, final_step=default.final_step)
            if missing := [NEEDED[name] for name in required if not facts.is_known(name)]:
                of = f" of {facts.adapter_of}, of which the weights there are an adapter" if facts.adapter_of else ""
                unknown = "; ".join(missing).format(of=of)
                raise UserError(f"{facts.model}: not known and not in the curve: {unknown}: give it")
            facts = facts.with_unique_tokens()
            return TrainingRun.of(
                facts,
                self._learning_rates(facts, default),
                losses.log(),
                losses.metric_series(),
                checkpoints=_trainer_steps(losses),
                notes=(*losses.notes, *facts.notes()),
                low_confidence_reasons=losses.low_confidence_reasons,
            )
        except UserError as error:
            raise UserError("; ".join((f"{error}", *losses.notes))) from None

    def _learning_rates(self, facts: RunFacts, default: LearningRateSchedule | None) -> LearningRateSchedule:
        """Return the schedule of the curve: the one that is stated, or `default`, or that of its log."""
        stated, final_step, warmup_steps = self._schedule.schedule, int(facts.final_step or 1), facts.warmup_steps
        steps, rates = (self.losses.log()[name] for name in ("step", "learning_rate"))
        if self._schedule.is_relative and isinstance(stated, Schedule):
            stated = stated.at_peak_of(steps, rates)
        _refuse_late_rows(facts, self.losses.columns["step"], final_step)
        if warmup_steps and warmup_steps >= final_step:
            raise UserError(f"warmup_steps: {warmup_steps:,}, but the schedule ends at step {final_step:,}")
        if default is None or not default.is_known:
            return LearningRateSchedule.of_log(final_step, steps, rates, stated, warmup_steps)
        is_logged, given = bool(np.isfinite(rates).any()), ScheduleProvenance.GIVEN
        return replace(default, stated_warmup=warmup_steps, warmup_logged=is_logged, provenance=given)


def without_none(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {key: value for key, value in arguments.items() if value is not None}


def input_of(arguments: Mapping[str, Any], name: str) -> RunInput:
    """Return the input of a run from a mapping of its curve, its facts and its name, by default that of its file or `name`.

    Raise UserError for another key.
    """
    facts = without_none(arguments)
    curve, count_parameters = facts.pop("curve", None), facts.pop("count_parameters", None)
    name = facts.pop("name", Path(curve).name if isinstance(curve, str | Path) else name)
    names = sorted(["curve", "name", "count_parameters", *FACTS])
    if unknown := sorted(facts.keys() - set(names)):
        meant = did_you_mean(unknown[0], names)
        raise UserError(f"{name}: unknown field {', '.join(unknown)}; a run has {', '.join(names)}{meant}")
    try:
        return RunInput(curve, name, facts, count_parameters)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def states_file(schedule: Any) -> TypeGuard[str | Path]:
    """Return whether a schedule is a file, which states all of it."""
    return isinstance(schedule, str | Path) and schedule not in SHAPES


class _StatedSchedule(NamedTuple):
    """Schedule that a user states; is_relative: whether it is in units of its peak, which the log has."""

    schedule: Schedule | ScheduleTable | None
    final_step: int | None
    warmup_steps: int | None = None
    is_relative: bool = False


def _stated_schedule(schedule: Any, arguments_of_run: dict[str, Any]) -> _StatedSchedule:
    """Return the schedule of a file, a shape or fields, which take precedence over the arguments of the run."""
    if states_file(schedule):
        if arguments_of_run and Path(schedule).exists():
            unused = " and ".join(f"{name} ({option(name)})" for name in arguments_of_run)
            raise UserError(f"{unused}: not used with the schedule file {schedule}")
        from toposcale.forecasting.logs.table_files import read_schedule  # imports pyarrow

        table = read_schedule(schedule)
        return _StatedSchedule(table, table.steps)
    if not (schedule is None or isinstance(schedule, Mapping | str)):
        raise UserError(
            f"schedule: a shape ({', '.join(SHAPES)}), a mapping of its fields, or a file, but it is a "
            f"{type(schedule).__name__}"
        )
    stated = arguments_of_run | without_none({"shape": schedule} if isinstance(schedule, str) else schedule or {})
    stated |= {key: fact.parse(stated[key], key) for key, fact in (FACTS | SHAPE_FIELDS).items() if key in stated}
    if schedule is None:
        return _StatedSchedule(None, stated.get("steps"), stated.get("warmup_steps"))
    if not {"steps", "at"} & stated.keys():
        raise UserError("schedule: steps, the last step of the run, is missing")
    if "peak" not in stated and 0 < stated.get("final", 0) < MIN_RATIO:
        raise UserError(
            f"final (--final): {stated['final']:g} without a peak is a ratio to it: give the peak too (--peak), or a ratio "
            "such as 0.1"
        )
    is_relative = not {"peak", "at"} & stated.keys()
    whole_schedule = schedule_of({"peak": 1.0} | stated if is_relative else stated)
    return _StatedSchedule(whole_schedule, whole_schedule.steps, stated.get("warmup_steps"), is_relative)


def _refuse_late_rows(facts: RunFacts, steps: np.ndarray, final_step: int) -> None:
    """Raise UserError if the curve continues after the end of the schedule."""
    if (end := int(steps.max(initial=0))) > 1.01 * final_step:
        is_near = facts.cost.steps_of_tokens(end) <= 1.01 * final_step
        are_tokens = is_near and not np.any(steps % facts.tokens_per_step)
        raise UserError(
            f"{facts.model}: the curve goes to step {end:,}, but the schedule ends at step {final_step:,}"
            + ("; its steps are tokens: divide them by the tokens per step (--tokens-per-step)" if are_tokens else "")
        )


def _columns_by_name(curve: Any) -> Any:
    """Return the columns of a curve by name; raise UserError for an object without columns."""
    if hasattr(curve, "index") and getattr(curve, "ndim", 2) == 1:  # a series
        return {"step": np.asarray(curve.index), "loss": np.asarray(curve)}
    if hasattr(curve, "keys"):
        return curve
    if isinstance(curve, list | tuple) and curve and all(isinstance(row, Mapping) for row in curve):
        import pandas as pd  # slow to import, and files do not need it

        return pd.DataFrame(list(curve))
    if getattr(curve, "ndim", 0) == 2 and curve.shape[1] == 2:
        return {"step": curve[:, 0], "loss": curve[:, 1]}
    raise UserError(
        "curve: a file, a folder, columns by name such as a data frame, a series of losses whose index is the step, an "
        f"array (n, 2) of steps and losses, or a list of rows by name, but it is a {type(curve).__name__}"
    )


def _refuse_without_losses(losses: LossCurve) -> None:
    """Raise UserError if no entry of the log of a Trainer has a loss; an empty log is that of a start."""
    if (state := losses.trainer) is None or not (history := state.content["log_history"]):
        return
    columns = [losses.columns[name] for name in ("loss", "validation_loss") if name in losses.columns]
    if not any(np.isfinite(values).any() for values in columns):
        keys = dict.fromkeys(key for entry in history if isinstance(entry, dict) for key in entry)
        raise UserError(
            f"{state.path}: no entry of its log_history has a step and a loss (as numbers); its keys are {listed(keys, 20)}"
        )


def _refuse_other_units(losses: LossCurve, subject: str | Path) -> None:
    """Raise UserError if a loss is 0 or less, as those of policies and flows may be."""
    for name in ("loss", "validation_loss"):
        if (low := np.fmin.reduce(losses.columns.get(name, ()), initial=np.inf)) <= 0:
            raise UserError(
                f"{subject}: the {name.replace('_', ' ')} is {low:g} in a row, but a loss in nats per token is above 0"
            )


def _logged_facts(losses: LossCurve, count_parameters: CountParameters | None) -> RunFacts:
    """Return the facts of a run that the curve states, and the weights with it where they can be counted."""
    if (state := losses.trainer) is None:
        return losses.facts
    folder, base = state.path.parent, ""
    if (adapter := folder / "adapter_config.json").exists():  # its parameters are not those of the model
        base = str(read_json(adapter).get("base_model_name_or_path") or "a model that it does not name")
    n_parameters, inner = 0, 0
    with suppress(UserError, OSError):  # no weights there
        if count_parameters is not None:
            n_parameters, inner = count_parameters(Path(base) if base else folder)
    logged, epochs = trainer_states.facts(state.content, inner), state.content.get("epoch")
    total = [epochs / step * logged["final_step"] for step in _trainer_steps(losses) if epochs and logged["final_step"]]
    return UNKNOWN.with_provenance(
        Provenance.LOGGED,
        tokens_per_step=float(logged["tokens_per_step"] or np.nan),
        final_step=logged["final_step"],
        epochs=total[0] if total else np.nan,
        objective=losses.facts.objective,
    ).with_provenance(Provenance.WEIGHTS, n_parameters=n_parameters or np.nan, adapter_of=base)


def _trainer_steps(losses: LossCurve) -> list[int]:
    """Return the step of a Trainer's state, a checkpoint whose loss may not be logged; [] for other files."""
    return [step] if losses.trainer and (step := int(losses.trainer.content["global_step"])) else []


_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".log", ".txt")
_PART_OF_RUN = re.compile(r"(checkpoint|ckpt|weight|snapshot|(global_)?step|iter|epoch)", re.IGNORECASE)


def logs_in(folder: Path) -> list[Path]:
    """Return the files of a folder that are read as loss curves; of a part of a run without one, those around it.

    Around a folder of any other name there may be logs of other runs.
    """
    around = [folder.resolve().parent] if _PART_OF_RUN.match(folder.resolve().name) else []
    for place in (folder, *around):
        files = [file for file in sorted(place.iterdir()) if file.suffix in _SUFFIXES and file.is_file()]
        if logs := [file for file in files if _is_curve(file)]:
            return logs
    return []


def log_of(path: Path) -> Path:
    """Return the only log of a folder; a file, and a folder that is a log by itself or has none, unchanged.

    Raise UserError if there are several.
    """
    by_itself = (trainer_states.FILE_NAME, f"checkpoint-*/{trainer_states.FILE_NAME}", "**/*.tfevents.*")
    if not path.is_dir() or any(any(path.glob(pattern)) for pattern in by_itself):
        return path
    logs = logs_in(path)
    if len(logs) > 1:
        raise UserError(f"{path}: {len(logs)} logs, {listed([log.name for log in logs], 5)}; name one of them")
    return logs[0] if logs else path


def _is_curve(file: Path) -> bool:
    try:
        return len(loss_curves.read(file).columns["step"]) > 1
    except UserError:
        return False
