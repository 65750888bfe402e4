"""Ridge regression across models: the final loss from features of the first k%, one size left out."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from toposcale.analysis.training_runs import features_of
from toposcale.features.feature import TOPOLOGY
from toposcale.features.registry import group_of
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.residuals import student_t
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast

PENALTIES = np.geomspace(1e-3, 1e4, 22)
"""Candidates, as multiples of the number of training models; with the largest every prediction is nearly the mean."""


def ridge_weights(
    design: np.ndarray, rows: np.ndarray, penalties: np.ndarray, blocks: np.ndarray | None = None
) -> np.ndarray:
    """(penalties, rows, models): what each target counts in each prediction, which is linear in the targets.

    Ridge minimises |y - Xw|^2 + penalty * models * |w|^2 after centring y, with columns standardised on `design`
    (models, features). Columns that are constant in `design` are left out. `blocks` (features,): columns of one
    number are the entries of one vector; they share one scale, the root of their summed variances, so that a vector
    counts as one feature and a pixel that hardly moves stays small.
    """
    scale = design.std(axis=0)
    if blocks is not None and len(blocks):
        scale = np.sqrt(np.bincount(blocks, weights=scale**2))[blocks]
    moving = scale > 1e-12 * (np.abs(design).max(axis=0, initial=0.0) + 1e-300)
    centre = design.mean(axis=0)[moving]
    standard = (design[:, moving] - centre) / scale[moving]
    # the dual form: the matrices are models x models, however long the vectors; einsum, since BLAS sums in an
    # order that depends on the number of threads
    eigenvalues, vectors = np.linalg.eigh(np.einsum("if,jf->ij", standard, standard))
    similarity = np.einsum("rf,jf->rj", (rows[:, moving] - centre) / scale[moving], standard)
    shrunk = vectors / (np.maximum(eigenvalues, 0.0) + penalties[:, None, None] * len(design))
    weights = np.einsum("rk,pjk->prj", np.einsum("rj,jk->rk", similarity, vectors), shrunk)
    return np.asarray(weights - weights.mean(axis=2, keepdims=True) + 1 / len(design))


class Problem(NamedTuple):
    """Ridge with a penalty that is chosen on the models to learn from: its predictions, linear in their targets.

    The penalty has the least squared error over leave-one-group-out within `others`; everything, the
    standardisation too, is done again in each inner fold.
    """

    others: list[str]
    groups: np.ndarray
    inner: np.ndarray  # (penalties, models, models) weights of the predictions with the own group left out
    outer: np.ndarray  # (penalties, rows, models)

    def solve(self, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the predictions (rows,) from targets (models,), and the held-out errors (models,)."""
        errors = np.einsum("pij,j->pi", self.inner, targets) - targets
        mean_errors = np.mean(errors**2, axis=1)
        # among equals the strongest penalty
        best = np.flatnonzero(mean_errors <= mean_errors.min() * (1 + 1e-9))[-1]
        return np.einsum("rj,j->r", self.outer[best], targets), errors[best]


def nested(
    design: np.ndarray,
    groups: np.ndarray,
    rows: np.ndarray,
    blocks: np.ndarray | None = None,
    others: Sequence[str] = (),
) -> Problem:
    """Build the problem of models `design` (models, features) in `groups`, to be solved for `rows` (rows, features)."""
    inner = np.zeros((len(PENALTIES), len(groups), len(groups)))
    for group in np.unique(groups):
        left_out = groups == group
        row, column = np.ix_(left_out, ~left_out)
        inner[:, row, column] = ridge_weights(design[~left_out], design[left_out], PENALTIES, blocks)
    return Problem(list(others), groups, inner, ridge_weights(design, rows, PENALTIES, blocks))


class Ridge:
    """Forecasters `ridge_topology`, `ridge_loss`, `ridge_size` (only the number of parameters), `ridge_all`.

    family: runs of all models, cut at the same share of their training. finished: the finished ones by model, whole; of
    the model that is forecast, and those of its size, are never read.
    """

    def __init__(self, kind: str, family: Sequence[TrainingRun], finished: Mapping[str, TrainingRun]) -> None:
        self.kind, self.family, self.finished = kind, list(family), finished

    def fit(self, training: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Read the features of the other models of the family; NoForecast: too few of them."""
        self._problem, self._final_step = self.problem(training), training.final_step
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return losses with their 95% intervals."""
        return [self._prediction(target.step) for target in targets]

    def _prediction(self, step: int) -> Prediction:
        """Forecast the loss at a step from those of the others at the same share; 95% by Student's t on held-out errors."""
        share = step / self._final_step
        targets = np.array([loss_at(self.finished[model], share) for model in self._problem.others])
        values, errors = self._problem.solve(targets)
        spread = np.sqrt(np.mean(errors**2) * (1 + 1 / len(targets)))
        half_width = float(student_t(len(np.unique(self._problem.groups)) - 1) * spread)
        value = float(values[0])
        if not value > 0:
            raise NoForecast("the regression gives no positive loss")
        # Symmetric in the logarithm: a loss has no negative end.
        return Prediction(value, value**2 / (value + half_width), value + half_width)

    def problem(self, training: TrainingRun) -> Problem:
        """Return the regression problem of a run; NoForecast: too few other models, or no finite feature."""
        others = [other for other in self.family if other.model != training.model and other.model in self.finished]
        if len({model.n_parameters for model in (*others, training)}) > 1:
            # the loss of another seed of the same size is nearly the answer
            others = [other for other in others if other.n_parameters != training.n_parameters]
        groups = np.array([other.n_parameters for other in others])
        if len(np.unique(groups)) < 2:
            groups = np.arange(len(others))
        if len(np.unique(groups)) < 3:
            raise NoForecast("fewer than 3 other models whose final loss is known")
        table, blocks = _table([_VECTORS[self.kind](model) for model in (*others, training)])
        if not table.shape[1]:
            raise NoForecast(f"no feature of {self.kind} is finite in every model")
        return nested(table[:-1], groups, table[-1:], blocks, [other.model for other in others])


def loss_at(run: TrainingRun, share: float) -> float:
    """Return the loss of a finished run at a share of its training, interpolated in the logarithm of the step."""
    if share >= 1:
        return run.progress.loss
    steps, losses = run.loss_curve
    return float(np.interp(np.log(max(share * run.final_step, 1.0)), np.log(steps), losses))


def _table(vectors: Sequence[Mapping[str, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (models, features) that are finite in every model, by name, and their blocks (features,)."""
    names = sorted(set.intersection(*(set(vector) for vector in vectors)))
    table = np.array([[vector[name] for name in names] for vector in vectors]).reshape(len(vectors), len(names))
    finite = np.all(np.isfinite(table), axis=0)
    # "name[000012]" is an entry of the vector "name".
    stems = [name.partition("[")[0] for name, is_finite in zip(names, finite, strict=True) if is_finite]
    blocks = np.unique(stems, return_inverse=True)[1] if stems else np.empty(0, dtype=np.int64)
    return table[:, finite], blocks


def _feature_vector(training: TrainingRun, is_chosen: Callable[[str], bool]) -> dict[str, float]:
    """Return the last value and the mean slope per log step of each feature, of a vector only the last value."""
    vector: dict[str, float] = {}
    for name, values in features_of(training).items():
        is_measured = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if not is_chosen(name) or not is_measured.any():
            continue
        values, steps = values[is_measured], training.checkpoint_steps[is_measured]
        if values.ndim > 1:
            vector.update({f"{name}[{i:06d}]": float(value) for i, value in enumerate(values[-1].ravel())})
            continue
        vector[f"{name} last"] = float(values[-1])
        if len(values) > 1:
            times = np.log(steps + max(training.schedule.warmup_steps, 1))
            vector[f"{name} slope"] = float((values[-1] - values[0]) / (times[-1] - times[0]))
    return vector


def _loss_vector(training: TrainingRun) -> dict[str, float]:
    steps, losses = training.loss_curve
    if len(steps) < 3:
        return {}
    last_half = slice(-max(3, len(steps) // 2), None)
    slope, _ = np.polyfit(np.log(steps[last_half]), losses[last_half], 1)
    return {
        "loss last": float(np.mean(losses[-2:])),
        "loss slope": float(slope),
        "log parameters": float(np.log(training.n_parameters)),
    }


_VECTORS: dict[str, Callable[[TrainingRun], dict[str, float]]] = {
    "ridge_topology": lambda training: _feature_vector(
        training, lambda name: group_of(name.rpartition("/")[2]) == TOPOLOGY
    ),
    "ridge_loss": _loss_vector,
    "ridge_size": lambda training: {"log parameters": float(np.log(training.n_parameters))},
    "ridge_all": lambda training: {**_feature_vector(training, lambda name: True), **_loss_vector(training)},
}
