"""Does a metric tell more than the loss? The tests behind the report, for the columns of anybody's table.

Within runs and ahead: the test of prewhitened residuals (`toposcale.statistics.residual_test`), of all runs together.
Between runs: partial correlations with permuted residuals. Each answer comes with the test's power for this table, a
positive control and placebos; docs/test-metric.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from toposcale.analysis.correlations import ControlledRun
from toposcale.analysis.metric_between import between_answers
from toposcale.analysis.metric_checkpoints import over_checkpoints
from toposcale.analysis.metric_input import Source, metric_table
from toposcale.analysis.metric_questions import Question, sentence
from toposcale.io.errors import UserError, listed, printable
from toposcale.io.files import finite_or_none

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = (
    *("question", "metric", "target", "given", "answer", "estimate", "low", "high", "p", "q"),
    *("detectable", "positive_control", "false_positive_rate", "gain", "n_runs", "n_points"),
    *("spearman", "spearman_placebo", "reason", "sentence"),
)
"""Columns of the result; detectable: the least correlation that is found in 80% of cases; positive_control and
false_positive_rate: shares of losses with noise of that size, and of placebos, that are found; gain: of the cross-validated
error between runs."""


@dataclass(frozen=True, repr=False)
class MetricTest:
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

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw a metric and the loss, their residuals, and the estimates with the power of the tests.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw the estimates alone into these axes.

        Returns
        -------
        matplotlib.figure.Figure
            The picture of the first metric.
        """
        from toposcale.analysis.metric_picture import draw

        return draw(self.answers, self.runs, ax)

    def text(self) -> str:
        """Return the answers in lines."""
        lines: list[str] = []
        for metric, rows in self.answers.groupby("metric", sort=False):
            first = rows.iloc[0]
            lines += [f"{metric} and {first['target']}, given {first['given']}"]
            if np.isfinite(first["spearman"]):
                lines += [
                    f"  plain rank correlation {first['spearman']:.2f}; placebos, which share the drift alone, have "
                    f"{first['spearman_placebo']:.2f}"
                ]
            lines += [f"  {row['question']:<16}  {row['sentence']}" for row in rows.to_dict("records")] + [""]
        return printable("\n".join([*lines, *(f"note: {note}" for note in self.notes)]).strip())

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        said = [f"{row.metric} {row.question}: {row.answer}" for row in self.answers.itertuples()]
        return f"<MetricTest {listed(said, 3)}>"

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
        several runs, but that features of checkpoints are joined by step to the log beside them.
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
    if ahead < 1 or not 0 < share < 1:
        raise UserError(f"ahead: {ahead}, share: {share:g}; at least 1, and between 0 and 1")
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
    answers = [within, over_checkpoints(data, Question.AHEAD, ahead, seed)[0], between_answers(data, share, seed)]
    rows = pd.concat(answers, ignore_index=True)
    columns = ["spearman", "spearman_placebo"]
    rows[columns] = (
        rows[["metric"]]
        .merge(within.reindex(columns=["metric", *columns]), on="metric", how="left")[columns]
        .to_numpy()
    )
    rows["sentence"] = [sentence(row, ahead, share) for row in rows.to_dict("records")]
    order = rows["metric"].map({name: place for place, name in enumerate(data.metrics)})
    rows = rows.assign(order=order).sort_values("order", kind="stable", ignore_index=True)
    return MetricTest(rows.reindex(columns=COLUMNS), data.notes, runs)


test_metric.__test__ = False  # type: ignore[attr-defined]  # pytest takes what begins with test for one
