"""Training compute C = 6 N D in FLOP (Kaplan et al. 2020, arXiv 2001.08361)."""

from typing import Any

from toposcale.forecasting.runs.training_run import TrainingRun


def flop(n_parameters: Any, tokens: Any) -> Any:
    """Return the training compute in FLOP, of numbers or arrays."""
    return 6.0 * n_parameters * tokens


def flop_of_steps(run: TrainingRun, steps: float) -> float:
    """Return the compute of so many steps of a run in FLOP; NaN where the tokens of a step are not known."""
    return float(flop(run.n_parameters, run.tokens_per_step * steps))


def flop_left(run: TrainingRun) -> float:
    """Return the compute from now to the end of the schedule in FLOP."""
    return flop_of_steps(run, max(run.final_step - run.progress.step, 0))
