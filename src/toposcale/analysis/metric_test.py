"""Does a metric tell more than the loss? The tests behind the report, for the columns of anybody's table.

Within runs and ahead: the test of prewhitened residuals (`toposcale.statistics.residual_test`), of all runs together.
Between runs: partial correlations with permuted residuals. Each answer comes with the test's power for this table, a
positive control and placebos; docs/test-metric.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import NOT_TESTED, YES
from toposcale.analysis.correlations import ControlledRun
from toposcale.analysis.metric_answers import Question, between_answers, over_checkpoints
from toposcale.analysis.metric_table import Source, metric_table
from toposcale.analysis.sensitivity import POWER_WANTED
from toposcale.forecasting.decision import picture
from toposcale.forecasting.results import Result
from toposcale.io.errors import UserError, counted, listed, printable
from toposcale.io.files import finite_or_none
from toposcale.statistics.coefficients import standardised
from toposcale.statistics.prewhitening import prewhiten, with_squares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = (
    "question",
    "metric",
    "target",
    "given",
    "answer",
    "estimate",
    "low",
    "high",
    "p",
    "q",
    "detectable",
    "positive_control",
    "false_positive_rate",
    "gain",
    "n_runs",
    "n_points",
    "spearman",
    "spearman_placebo",
    "reason",
    "sentence",
)
"""Columns of the result; docs/test-metric.md says what they are."""
METRIC_COLOUR = picture.OTHERS[0]
LOSS_COLOUR = picture.INK


@dataclass(frozen=True, repr=False)
class MetricTest(Result):
    """Answers of `test_metric`: a row for each question and metric, and notes on what was left out or assumed."""

    answers: pd.DataFrame
    notes: tuple[str, ...]
    runs: Sequence[ControlledRun] = field(default=())

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each question and metric."""
        return self.answers.copy()

    def to_dict(self) -> dict[str, Any]:
        """Return the rows and notes as JSON has them, None where there is no number."""
        rows = self.answers.to_dict("records")
        return {"rows": [{k: finite_or_none(v) for k, v in row.items()} for row in rows], "notes": [*self.notes]}

    def _draw(self, ax: "Axes | None") -> "Axes":
        """Draw the first metric and the loss, their residuals, and the estimates with the power of the tests."""
        rows = self.answers[self.answers["metric"] == self.answers["metric"].iloc[0]]
        if ax is not None:
            _draw_estimates(ax, rows)
            return ax
        figure = picture.new_figure(11.0, 3.6)
        series, residuals, estimates = figure.subplots(1, 3, width_ratios=[3, 3, 2.4])
        first = rows.iloc[0]
        metric = first["metric"]
        run = next((run for run in self.runs if run.test and metric in run.group.keys["feature"]), None)
        if run is None:
            for axes in (series, residuals):
                axes.text(0.5, 0.5, "not tested", ha="center", transform=axes.transAxes)
        else:
            _draw_series(series, run, first)
            _draw_residuals(residuals, run, first)
        _draw_estimates(estimates, rows)
        picture.finish(figure)
        return estimates

    def __str__(self) -> str:
        lines: list[str] = []
        for metric, rows in self.answers.groupby("metric", sort=False):
            first = rows.iloc[0]
            lines += [f"{metric} and {first['target']}, given {first['given']}"]
            if np.isfinite(first["spearman"]):
                lines += [
                    f"  plain rank correlation {first['spearman']:.2f}; placebos, which share only the drift, have "
                    f"{first['spearman_placebo']:.2f}"
                ]
            lines += [f"  {row['question']:<16}  {row['sentence']}" for row in rows.to_dict("records")] + [""]
        return printable("\n".join([*lines, *(f"note: {note}" for note in self.notes)]).strip())

    @property
    def _summary(self) -> str:
        return listed([f"{row.metric} {row.question}: {row.answer}" for row in self.answers.itertuples()], 3)

    def _repr_html_(self) -> str:
        shown = self.answers[["metric", "question", "answer", "estimate", "low", "high", "q", "sentence"]]
        return shown.to_html(index=False, float_format="{:.3g}".format, na_rep="")


def test_metric(
    table: Source | Sequence[Source],
    metric: str | Sequence[str] = (),
    *,
    target: str | None = None,
    given: str | Sequence[str] | None = None,
    run: str | None = None,
    settings: str | None = None,
    warmup_steps: float | None = None,
    ahead: int = 1,
    share: float = 0.3,
    seed: int = 0,
) -> MetricTest:
    """Test whether a metric tells more of the loss than the step, the covariates and the loss itself do.

    Parameters
    ----------
    table : data frame, mapping, path, or a sequence of them
        Rows with a step, a loss and further columns of numbers, of one run or (`run`) of several; several tables are
        several runs, but that features of checkpoints are joined by step to the log of their training.
    metric : str or sequence of str
        Columns to test; by default all that are not known as something else.
    target : str, optional
        Column of the loss; by default that of a validation loss, else of a training loss.
    given : str or sequence of str, optional
        Covariates; by default the learning rate and the norm of the weights, where they are there. The step always is one.
    run : str, optional
        Column that tells runs apart, by default `run` or `model`.
    settings : str, optional
        Column of what runs share but for their seed; tells "between seeds" and "between settings" apart.
    warmup_steps : float, optional
        Steps of warm-up, 0 without one, of which twice as many are left out; by default from the learning rate, else 5%.
    ahead : int
        Checkpoints that the metric looks ahead.
    share : float
        Share of a run at which the metric is read, between runs.
    seed : int
        Seed of the simulations and permutations.

    Returns
    -------
    MetricTest
        A row for each question and metric: answer (yes, no, not tested), estimate, 95% interval, p, q, power, controls.

    Raises
    ------
    UserError
        If a file cannot be read, or a column is not there.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> random = np.random.default_rng(0)
    >>> noise = random.standard_normal(100)
    >>> loss = 3 + 5 / np.arange(1, 101) ** 0.5 + 0.01 * noise
    >>> table = {"step": np.arange(100), "loss": loss, "mine": noise + random.standard_normal(100)}
    >>> toposcale.test_metric(table, warmup_steps=0).to_frame()[["question", "answer"]]
           question      answer
    0   within runs         yes
    1         ahead          no
    2  between runs  not tested
    """
    if ahead < 1:
        raise UserError(f"--ahead {ahead}: at least 1 checkpoint")
    if not 0 < share < 1:
        raise UserError(f"share {share:g}: between 0 and 1")
    data = metric_table(
        table,
        metrics=[metric] if isinstance(metric, str) else metric,
        target=target,
        given=[given] if isinstance(given, str) else given,
        run=run,
        settings=settings,
        warmup_steps=warmup_steps,
    )
    within, runs = over_checkpoints(data, Question.WITHIN, 0, seed)
    ahead_rows, _ = over_checkpoints(data, Question.AHEAD, ahead, seed)
    plain = within.set_index("metric").reindex(columns=["spearman", "spearman_placebo"])
    rows = pd.concat([within, ahead_rows, between_answers(data, share, seed)], ignore_index=True)
    rows = rows.drop(columns=plain.columns, errors="ignore").join(plain, on="metric")
    rows["sentence"] = [sentence(row, ahead, share) for row in rows.to_dict("records")]
    order = rows["metric"].map({name: place for place, name in enumerate(data.metrics)})
    rows = rows.iloc[np.argsort(order, kind="stable")].reindex(columns=COLUMNS).reset_index(drop=True)
    return MetricTest(rows, data.notes, runs)


test_metric.__test__ = False  # type: ignore[attr-defined]  # pytest takes what begins with test for one


def sentence(row: Mapping[Any, Any], ahead: int, share: float) -> str:
    """Say an answer in a sentence."""
    if row["answer"] == NOT_TESTED:
        return f"Not tested: {row['reason']}."
    what = {
        Question.WITHIN: f"follows the {row['target']} beyond {row['given']} and the past of both",
        Question.AHEAD: f"tells the {row['target']} {counted(ahead, 'checkpoint')} later beyond that so far",
    }.get(row["question"], f"at {share:.0%} tells the last {row['target']} of a run beyond that so far")
    if row["answer"] == YES:
        interval = f", 95% interval {row['low']:.2f} to {row['high']:.2f}" if np.isfinite(row["low"]) else ""
        return f"Yes: it {what} (correlation {row['estimate']:.2f}{interval}, q = {row['q']:.2g})."
    power = f"a correlation of {row['detectable']:.2f} or more would be found in {POWER_WANTED:.0%} of such tables"
    return f"No sign that it {what} (correlation {row['estimate']:.2f}, q = {row['q']:.2g}); {power}."


def _draw_series(axes: "Axes", run: ControlledRun, row: pd.Series) -> None:
    """Draw a metric and the loss of a run in units of their standard deviations."""
    steps, metric = run.group.steps, run.group.values[run.group.keys["feature"] == row["metric"]]
    for values, name, colour in (
        (run.group.targets, row["target"], LOSS_COLOUR),
        (metric, row["metric"], METRIC_COLOUR),
    ):
        axes.plot(steps, standardised(values)[0] * np.sqrt(len(steps)), color=colour, linewidth=1.1, label=name)
    axes.set(xlabel="step", ylabel="standard deviations")
    axes.legend(frameon=False, fontsize=8)
    axes.set_title(
        f"{run.group.model}; over {row['n_runs']} runs a rank correlation of {row['spearman']:.2f}\n"
        f"(placebos, which share only the drift, {row['spearman_placebo']:.2f})",
        fontsize=8,
    )


def _draw_residuals(axes: "Axes", run: ControlledRun, row: pd.Series) -> None:
    """Draw the prewhitened residuals of a metric against those of the loss of a run."""
    series = np.vstack([run.segment.values[run.group.keys["feature"] == row["metric"]], run.segment.targets])
    metric, loss = prewhiten(series, with_squares(run.segment.controls), half_cosine=True).values
    axes.plot(loss, metric, ".", color=METRIC_COLOUR, markersize=4)
    axes.set(xlabel=row["target"], ylabel=row["metric"])
    axes.set_title(
        f"its prewhitened residuals, given {row['given']};\nover the runs a correlation of {row['estimate']:.2f}",
        fontsize=8,
    )


def _draw_estimates(axes: "Axes", rows: pd.DataFrame) -> None:
    """Draw the estimate of each question with its interval; grey: what the test finds in less than 80% of cases."""
    for place, row in enumerate(rows.to_dict("records")):
        if np.isfinite(row["detectable"]):
            axes.barh(place, 2 * row["detectable"], left=-row["detectable"], height=0.6, color="0.9")
        if np.isfinite(row["estimate"]):
            axes.plot([row["low"], row["high"]], [place, place], color=METRIC_COLOUR)
            axes.plot(row["estimate"], place, "o", color=METRIC_COLOUR)
        axes.text(-0.97, place - 0.36, f"{row['question']}: {row['answer']}", fontsize=8, va="bottom")
    axes.axvline(0, color=LOSS_COLOUR, linewidth=0.8)
    axes.set(xlim=(-1, 1), ylim=(len(rows) - 0.4, -0.8), yticks=[], xlabel="correlation, 95% interval")
    axes.set_title("grey: found in less than 80% of cases", fontsize=8)
