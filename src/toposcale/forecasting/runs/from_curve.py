"""Training runs from the loss curves of users: files, folders of a Trainer, or columns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.logs import loss_curves, trainer_states
from toposcale.forecasting.runs.checks import refuse_curve
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.metadata import RunMetadata
from toposcale.forecasting.runs.schedules import MOST_STEPS, SHAPES, Schedule, ScheduleTable, schedule_of
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import weight_files
from toposcale.io.errors import NoForecast, UserError, listed
from toposcale.io.files import read_json

Curve = str | Path | Mapping[str, Any] | Any
"""A file, a folder, columns by name such as a data frame, a series of losses by step, (n, 2) steps and losses, or rows."""

LEAST_PARAMETERS, MOST_PARAMETERS, LEAST_TOKENS, MOST_TOKENS = 1000, 1e15, 64, 1e12
"""Bounds on the parameters of a language model, and on the tokens per step."""

LARGEST_RATIO = {"n_parameters": 1.25, "tokens_per_step": 1.1, "epochs": 1.1}
"""Ratio of what the user states to what the log does beyond which one of them is wrong: users round (0.5M for 524,288), and
programs count position embeddings or not."""

LEAST_RATIO = 1e-3
"""Without a peak, a minimum rate is a ratio to it; a value below this bound must be a rate."""


@dataclass(frozen=True)
class Stated:
    """A loss curve, and what its user states about the run (None: not stated). The fields are arguments of `advise`."""

    curve: Curve
    name: str
    n_parameters: float | None = None
    tokens_per_step: float | None = None
    schedule: Mapping[str, Any] | str | Path | None = None
    steps: int | None = None
    warmup_steps: int | None = None
    loss_column: str | None = None
    step_column: str | None = None
    run: int | None = None
    unique_tokens: float | None = None
    epochs: float | None = None
    optimizer: str = ""

    @property
    def has_schedule_file(self) -> bool:
        """Return whether the schedule is a file, which states all of it."""
        return isinstance(self.schedule, str | Path) and self.schedule not in SHAPES


FIELDS = tuple(Stated.__dataclass_fields__)
_LOSSES = ("loss", "validation_loss")
_OF_SCHEDULE, _COLUMNS = ("schedule", "steps", "warmup_steps"), ("loss_column", "step_column")


def run_of_curve(stated: Stated, like: TrainingRun | None = None, tokens_per_step: float | None = None) -> TrainingRun:
    """Return the run of a loss curve; raise UserError, which names what is missing.

    like: a run from which the schedule and its end are taken if nothing is stated about them. tokens_per_step: those of a
    step where neither the user nor the log states them.
    """
    stated = _with_checked_numbers(stated)
    return _run_of_losses(read_curve(stated), stated, like, tokens_per_step)


def _with_checked_numbers(stated: Stated) -> Stated:
    """Return what is stated with its numbers parsed; raise UserError for one that is out of bounds."""
    steps = whole_number(stated.steps, "steps", 1)
    warmup_steps = whole_number(stated.warmup_steps, "warmup_steps")
    n_parameters = parameters(stated.n_parameters, "n_parameters")
    tokens_per_step = number(stated.tokens_per_step, "tokens_per_step", 1, MOST_TOKENS)
    if tokens_per_step is not None and tokens_per_step < LEAST_TOKENS:
        raise UserError(
            f"tokens_per_step (--tokens-per-step): {tokens_per_step:g}, but a step reads sequences x tokens per sequence, "
            f"such as {tokens_per_step:g} x 1024 = {1024 * tokens_per_step:g}"
        )
    if not isinstance(stated.optimizer, str):
        raise UserError(f'optimizer: a name such as "adamw", but it is {stated.optimizer!r:.60}')
    return replace(
        stated, n_parameters=n_parameters, tokens_per_step=tokens_per_step, steps=steps, warmup_steps=warmup_steps
    )


def _run_of_losses(
    losses: loss_curves.LossCurve, stated: Stated, like: TrainingRun | None = None, tokens_per_step: float | None = None
) -> TrainingRun:
    """Return the run of a curve that was read; errors also say what was left out of it."""
    try:
        return _made_of_losses(losses, stated, like, tokens_per_step)
    except UserError as error:
        raise UserError("; ".join((f"{error}", *losses.notes))) from None


def _made_of_losses(
    losses: loss_curves.LossCurve, stated: Stated, like: TrainingRun | None, tokens_per_step: float | None
) -> TrainingRun:
    """Return the run of a curve that was read."""
    facts, log = facts_of(losses), losses.log()
    _refuse_contradictions(stated, facts)
    given, warmup_steps = _given_schedule(stated, log)
    last = given.steps if given else stated.steps or (like.final_step if like else facts.final_step)
    of = f" of {facts.adapter_of}, of which the weights there are an adapter" if facts.adapter_of else ""
    required = {
        f"n_parameters{of} (--n-parameters)": stated.n_parameters or facts.n_parameters,
        "tokens_per_step (--tokens-per-step)": stated.tokens_per_step or facts.tokens_per_step or tokens_per_step,
        "schedule (--schedule), or steps (--steps), the last step of the run": last,
    }
    if missing := [key for key, value in required.items() if not value]:
        raise UserError(f"{stated.name}: not known and not in the curve: {'; '.join(missing)}: give it")
    size, tokens, final_step = (float(value or 0) for value in required.values())
    _refuse_late_rows(stated.name, losses.columns["step"], tokens, int(final_step))
    if warmup_steps and warmup_steps >= final_step:
        raise UserError(f"warmup_steps: {warmup_steps:,}, but the schedule ends at step {int(final_step):,}")
    unique_tokens = _unique_tokens(stated, final_step * tokens) or final_step * tokens / (facts.epochs or np.nan)
    metadata = RunMetadata(
        stated.name,
        round(size),
        tokens,
        reached_step=facts.reached,
        notes=(*losses.notes, *facts.notes(stated)),
        low_confidence_reasons=(*losses.low_confidence_reasons, *((ADAPTER,) if facts.adapter_of else ())),
        optimizer=stated.optimizer,
        unique_tokens=unique_tokens,
    )
    if like is not None and like.schedule.is_known and given is None:
        is_logged = bool(np.isfinite(log["learning_rate"]).any())
        schedule = LearningRateSchedule.of_rates(
            int(final_step), like.schedule.rates, ScheduleProvenance.GIVEN, warmup_steps, is_logged
        )
    else:
        schedule = LearningRateSchedule.of_log(int(final_step), log["step"], log["learning_rate"], given, warmup_steps)
    return TrainingRun.of(metadata, schedule, log, losses.metric_series())


def _refuse_contradictions(stated: Stated, facts: "Facts") -> None:
    """Raise UserError where the user and the log state two numbers of parameters, or of tokens per step."""
    for name, option in (("n_parameters", "--n-parameters"), ("tokens_per_step", "--tokens-per-step")):
        given, logged = getattr(stated, name), getattr(facts, name)
        if given and logged and max(given / logged, logged / given) > LARGEST_RATIO[name]:
            raise UserError(
                f"{stated.name}: {name} ({option}) is {given:,.0f}, but {facts.provenance(name)} has {logged:,.0f}; leave "
                "the wrong one out"
            )


def _unique_tokens(stated: Stated, tokens: float) -> float | None:
    """Return the unique tokens of a run of so many tokens, None if not stated; UserError if the epochs contradict them."""
    epochs, unique = number(stated.epochs, "epochs", 0.01), number(stated.unique_tokens, "unique_tokens", 1)
    if not (epochs and unique):
        return unique or (tokens / epochs if epochs else None)
    implied = tokens / unique
    if max(epochs / implied, implied / epochs) > LARGEST_RATIO["epochs"]:
        raise UserError(
            f"{stated.name}: epochs (--epochs) is {epochs:g}, but the whole run, {tokens:.4g} tokens, makes {implied:.3g} "
            f"epochs of unique_tokens (--unique-tokens) {unique:.4g}; give one of them"
        )
    return unique


def run_as_read(stated: Stated) -> TrainingRun:
    """Return the run of a curve, unknown facts as NaN or 0; without a known end it ends at its last row."""
    stated = _with_checked_numbers(stated)
    losses = read_curve(stated)
    facts = facts_of(losses)
    end_assumed = stated.steps is None and stated.schedule is None and not facts.final_step
    if end_assumed:
        stated = replace(stated, steps=int(losses.columns["step"].max(initial=1)))
    least: dict[str, Any] = {"n_parameters": LEAST_PARAMETERS, "tokens_per_step": LEAST_TOKENS}
    unknown = {name: value for name, value in least.items() if not (getattr(stated, name) or getattr(facts, name))}
    run = _run_of_losses(losses, replace(stated, **unknown))
    unknown = {name: 0 if name == "n_parameters" else np.nan for name in unknown}
    schedule = replace(run.schedule, end_assumed=end_assumed)
    return replace(run, metadata=replace(run.metadata, **unknown), schedule=schedule)


def _refuse_late_rows(name: str, steps: np.ndarray, tokens_per_step: float, final_step: int) -> None:
    """Raise UserError if the curve continues after the end of the schedule."""
    if (end := int(steps.max(initial=0))) > 1.01 * final_step:
        are_tokens = end / tokens_per_step <= 1.01 * final_step and not np.any(steps % tokens_per_step)
        raise UserError(
            f"{name}: the curve goes to step {end:,}, but the schedule ends at step {final_step:,}"
            + ("; its steps are tokens: divide them by the tokens per step (--tokens-per-step)" if are_tokens else "")
        )


def known_run(known: Any, index: int, run: TrainingRun, stated: Stated) -> TrainingRun:
    """Return another run of the family; fields that are not stated are those of `run`, which was made from `stated`.

    known: a mapping of fields of `Stated`; index: its index in the list, for messages. The schedule is that of its log if
    none is stated and the log contradicts the schedule of `run`.
    """
    if not isinstance(known, Mapping):
        raise UserError(
            f'known run {index}: a mapping such as {{"curve": "losses.csv", "n_parameters": 25e6}}, but it is {known!r:.60}'
        )
    curve = known.get("curve")
    fields: dict[str, Any] = {
        "name": Path(curve).name if isinstance(curve, str | Path) else f"known run {index}",
        "optimizer": run.metadata.optimizer,
    }
    if np.isfinite(run.metadata.unique_tokens) and known.get("epochs") is None:
        fields["unique_tokens"] = run.metadata.unique_tokens
    fields |= {key: value for key, value in known.items() if value is not None}
    if unknown := sorted(set(fields) - set(FIELDS)):
        raise UserError(f"known: unknown field {', '.join(unknown)}; a run has {', '.join(sorted(FIELDS))}")
    if not {"curve", "n_parameters"} <= set(fields):
        raise UserError(f"{fields['name']}: a run has a curve and n_parameters")
    other = Stated(**{key: getattr(stated, key) for key in _COLUMNS} | fields)
    try:
        other_run = _under_a_schedule(other, run, stated)
        refuse_curve(other_run)
    except NoForecast as error:
        raise UserError(f"{other.name}: {error}; leave it out") from None
    return other_run


def _under_a_schedule(other: Stated, run: TrainingRun, stated: Stated) -> TrainingRun:
    """Return a known run with its stated schedule, or else that of `run`, or else that of its own log."""
    alike = {key: getattr(stated, key) for key in _OF_SCHEDULE}
    if fields := {key: value for key in _OF_SCHEDULE if (value := getattr(other, key)) is not None}:
        # A file holds the whole schedule, so nothing is added to it.
        other = other if other.has_schedule_file else replace(other, **alike | fields)
        return run_of_curve(other, None, run.tokens_per_step)
    is_stated = stated.schedule is not None or stated.steps is not None
    try:
        return run_of_curve(replace(other, **alike), None if is_stated else run, run.tokens_per_step)
    except UserError:
        steps = int(read_curve(other).columns["step"].max())
        return run_of_curve(replace(other, steps=steps), None, run.tokens_per_step)


def number(value: Any, what: str, least: float | None, most: float = np.inf) -> float | None:
    """Return a finite number from `least` (None: above 0) to `most`, or None; raise UserError if it is not one."""
    if value is None:
        return None
    try:
        parsed = number_of(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise UserError(f"{what}: {value!r} is not a number, for example 25e6") from None
    high_enough = parsed > 0 if least is None else parsed >= least
    if not (high_enough and np.isfinite(parsed) and parsed <= most):
        limits = "above 0" if least is None else f"at least {least:g}"
        limits += f" and at most {most:g}" if np.isfinite(most) else ""
        raise UserError(f"{what}: {parsed:g}, but it must be {limits}")
    return parsed


def parameters(value: Any, what: str) -> float | None:
    """Return a number of parameters, or None; raise UserError if no language model has so few, or so many."""
    n_parameters = number(value, what, 1, MOST_PARAMETERS)
    if n_parameters is not None and n_parameters < LEAST_PARAMETERS:
        raise UserError(f"{what}: {n_parameters:g} parameters make no language model; write 25e6 or 25M for 25 million")
    return n_parameters


def whole_number(value: Any, what: str, least: int = 0) -> int | None:
    """Return a whole number of steps, or None."""
    parsed = number(value, what, least, MOST_STEPS)
    if parsed is not None and parsed % 1:
        raise UserError(f"{what}: {parsed:g}, but it must be a whole number")
    return None if parsed is None else int(parsed)


def read_curve(stated: Stated) -> loss_curves.LossCurve:
    """Read the curve of a file, a folder or columns; None is that of a run that has not started."""
    curve, columns = stated.curve, {key: getattr(stated, key) for key in _COLUMNS}
    run = whole_number(stated.run, "run (--run)", 1)
    if curve is None:
        return loss_curves.LossCurve(dict.fromkeys(("step", *loss_curves.LOG), np.empty(0)))
    if isinstance(curve, str | Path):
        trainer_states.refuse_two_trainings(trainer_states.checkpoints_in(Path(curve)))
        losses = loss_curves.read(curve, **columns, run=run)
        _refuse_without_losses(losses)
        return losses
    named = _by_name(curve)
    return loss_curves.of_columns({str(key): named[key] for key in named}, **columns, run=run)


def _by_name(curve: Any) -> Any:
    """Return the columns of a curve by name; raise UserError for an object that is none."""
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


def _refuse_without_losses(losses: loss_curves.LossCurve) -> None:
    """Raise UserError if no entry of the log of a Trainer has a loss; an empty log is that of a start."""
    if (state := losses.trainer) is None or not (history := state.content["log_history"]):
        return
    if not any(len(losses.columns.get(name, ())) and np.isfinite(losses.columns[name]).any() for name in _LOSSES):
        keys = dict.fromkeys(key for entry in history if isinstance(entry, dict) for key in entry)
        raise UserError(
            f"{state.path}: no entry of its log_history has a step and a loss (as numbers); its keys are {listed(keys, 20)}"
        )


class Facts(NamedTuple):
    """Facts of a run from its file, or from the weights beside a Trainer's state; None if unknown.

    adapter_of: the base model, if the weights are an adapter. epochs: epochs of the whole run. of_weights: whether the
    parameters were counted in the weights.
    """

    n_parameters: int | None = None
    tokens_per_step: int | None = None
    final_step: int | None = None
    reached: int = 0
    adapter_of: str = ""
    epochs: float | None = None
    of_weights: bool = False

    def provenance(self, name: str) -> str:
        """Return what states a fact."""
        return "the checkpoint" if name == "n_parameters" and self.of_weights else "the log"

    def notes(self, stated: Stated) -> Iterator[str]:
        """Yield a clause for each fact that the user does not state."""
        for name, text in {"n_parameters": "parameters", "tokens_per_step": "tokens per step"}.items():
            if (value := getattr(self, name)) and not getattr(stated, name):
                yield f"{value:,} {text}, as {self.provenance(name)} states"


ADAPTER = "the weights there are an adapter, and the law is for pretraining from scratch"


def facts_of(losses: loss_curves.LossCurve) -> Facts:
    """Return the facts of a run that the curve and the weights beside it state."""
    if (state := losses.trainer) is None:
        return Facts(losses.n_parameters, losses.tokens_per_step, losses.final_step)
    folder, base = state.path.parent, ""
    if (adapter := folder / "adapter_config.json").exists():  # its parameters are not those of the model
        base = str(read_json(adapter).get("base_model_name_or_path") or "a model that it does not name")
    weights = Path(base) if base else folder
    try:
        size, inner = (weight_files.count_parameters(weights, embeddings=counted) for counted in (True, False))
    except (UserError, OSError):  # no weights there
        size, inner = None, 0
    stated = trainer_states.facts(state.content, inner)
    reached, read = int(state.content["global_step"]), state.content.get("epoch")
    epochs = read / reached * stated["final_step"] if read and reached and stated["final_step"] else None
    return Facts(size, **stated, reached=reached, adapter_of=base, epochs=epochs, of_weights=True)


def _given_schedule(
    stated: Stated, log: Mapping[str, np.ndarray]
) -> tuple[Schedule | ScheduleTable | None, int | None]:
    """Return the stated schedule and its warm-up steps, None if not stated."""
    schedule, steps, warmup_steps = stated.schedule, stated.steps, stated.warmup_steps
    if schedule is None:
        return None, warmup_steps
    if isinstance(schedule, str) and schedule in SHAPES:
        schedule = {"shape": schedule}
    if isinstance(schedule, str | Path):
        given = {"steps (--steps)": steps, "warmup_steps (--warmup-steps)": warmup_steps}
        unused = [name for name, value in given.items() if value is not None]
        if unused and Path(schedule).exists():
            raise UserError(f"{' and '.join(unused)}: not used with the schedule file {schedule}")
        return schedule_of(schedule), None
    if not isinstance(schedule, Mapping):
        raise UserError(
            f"schedule: a shape ({', '.join(SHAPES)}), a mapping of its fields, or a file, but it is a "
            f"{type(schedule).__name__}"
        )
    entries = [("steps", steps), ("warmup_steps", warmup_steps), *schedule.items()]
    fields = {key: value for key, value in entries if value is not None}
    fields |= {key: whole_number(fields[key], key) for key in ("steps", "warmup_steps", "decay_start") if key in fields}
    fields |= {key: number(fields[key], key, 0) for key in ("peak", "final") if key in fields}
    if "steps" not in fields and "at" not in fields:
        raise UserError("schedule: steps, the last step of the run, is missing")
    if "peak" not in fields and 0 < fields.get("final", 0) < LEAST_RATIO:
        raise UserError(
            f"final (--final): {fields['final']:g} without a peak is a ratio to it: give the peak too (--peak), or a ratio "
            "such as 0.1"
        )
    if "peak" not in fields and "at" not in fields:
        # A schedule in units of its peak takes the peak of the log, so that the two can be compared.
        fields["peak"] = _peak(schedule_of(fields | {"peak": 1.0}), log["step"], log["learning_rate"])
        fields |= {"final": fields["final"] * fields["peak"]} if "final" in fields else {}
    return schedule_of(fields), fields.get("warmup_steps")


def _peak(unit: Schedule | ScheduleTable, steps: np.ndarray, rates: np.ndarray) -> float:
    """Return the peak of a schedule that is given in units of it, from a log that may start mid-run."""
    inside = np.isfinite(rates) & (rates > 0) & (steps <= unit.steps)
    if not inside.any():
        return 1.0
    shares, logged = unit.rates()[steps[inside].astype(int)], rates[inside]
    if (at_peak := shares == 1).any():
        return float(logged[at_peak].max())
    return float(np.median(logged / np.maximum(shares, 1e-3)))
