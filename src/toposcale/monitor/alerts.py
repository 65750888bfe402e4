"""Alerts about a loss under way: it is not a number, does not come back from a spike, or is off track."""

from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from toposcale.forecasting.runs.curves import rise

PATIENCE = 200
"""Steps after which a spike should have come back."""

MIN_ROWS = 5
"""Fewest rows whose median is the loss now."""

PROGRESS = 1.05
"""Steps from one forecast to the next, as a factor: the law reads some 40 points of a curve."""

_WINDOW = 600  # last rows that are looked at
_INTERVAL = PATIENCE // 4  # steps from one look to the next


class AlertKind(StrEnum):
    """Kind of an alert."""

    NOT_FINITE = "not_finite"
    SPIKE = "spike"
    OFF_TRACK = "off_track"
    RISING = "rising"
    NO_GAIN = "no_gain"


class Alert(NamedTuple):
    """Alert about a training that goes wrong.

    Parameters
    ----------
    kind : AlertKind
        Kind of the alert.
    step : int
        First step at which it is wrong.
    message : str
        Description in one line.
    """

    kind: AlertKind
    step: int
    message: str


class Outlook(NamedTuple):
    """Forecast of the final loss with its 95% interval, by the name of a curve, and alerts about the loss so far."""

    curves: Mapping[str, float] = {}
    alerts: Sequence[Alert] = ()


def alerts(steps: ArrayLike, losses: ArrayLike) -> list[Alert]:
    """Return the alerts at the last row of a training log (n_rows,), in nats per token; at most one of each kind.

    `NOT_FINITE`: a loss of the last `PATIENCE` steps is NaN or infinite. `SPIKE`: the median of the last `PATIENCE` steps,
    and at least `MIN_ROWS` rows, lies above the lowest level before by 3% and six times the noise.
    """
    steps, losses = (np.asarray(rows, dtype=np.float64)[-_WINDOW:] for rows in (steps, losses))
    recent, finite = steps > steps.max(initial=0.0) - PATIENCE, np.isfinite(losses)
    result = []
    if len(broken := np.flatnonzero(recent & ~finite)):
        result.append(Alert(AlertKind.NOT_FINITE, int(steps[broken[0]]), "the loss is not a finite number"))
    finite_steps, values = steps[finite], losses[finite]
    if risen := rise(values, max(MIN_ROWS, int(np.sum(recent & finite)))):
        since = int(np.flatnonzero(values <= risen.lowest * (1 + 1e-9))[-1]) + 1
        message = f"the loss is {risen.now:.4g}, was {risen.lowest:.4g}, and has not come back"
        result.append(Alert(AlertKind.SPIKE, int(finite_steps[min(since, len(finite_steps) - 1)]), message))
    return result


class Watch:
    """Follow a training log row by row, and give each alert once, until its cause is over."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._standing: set[AlertKind] = set()
        self._looked = -_INTERVAL

    def add(self, step: int, loss: float) -> list[Alert]:
        """Return the alerts that begin with this row."""
        self._rows.append((step, loss))
        is_news = not np.isfinite(loss) and AlertKind.NOT_FINITE not in self._standing
        if step < self._looked + _INTERVAL and not is_news:
            return []
        self._looked = step
        return self.begun(alerts(*np.transpose(self._rows)), AlertKind.NOT_FINITE, AlertKind.SPIKE)

    def begun(self, now: Sequence[Alert], *kinds: AlertKind) -> list[Alert]:
        """Return the alerts that are new; earlier ones of `kinds` that are not among them are over."""
        fresh = [alert for alert in now if alert.kind not in self._standing]
        self._standing = self._standing.difference(kinds) | {alert.kind for alert in now}
        return fresh
