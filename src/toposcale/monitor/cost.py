"""Overhead of a monitor: costs of the training and of the background process."""

from dataclasses import dataclass


@dataclass
class Cost:
    """Overhead of the monitoring.

    Parameters
    ----------
    seconds, wall, background : float
        Seconds in calls of the monitor (on a GPU an upper bound, with waiting for work that the training had queued), of
        the training, and of the background process.
    snapshots, dropped : int
        Number of snapshots, and of those without features.
    """

    seconds: float = 0.0
    wall: float = 0.0
    snapshots: int = 0
    dropped: int = 0
    background: float = 0.0

    @property
    def share(self) -> float:
        """Fraction of the wall time that was spent in the monitor, 0 to 1."""
        return self.seconds / self.wall if self.wall else 0.0

    def __str__(self) -> str:
        """Return the overhead in one line."""
        seconds_each = self.background / max(1, self.snapshots)
        return (
            f"{self.snapshots} snapshots, {self.dropped} dropped; {self.seconds:.2f} s of {self.wall:.1f} s "
            f"({self.share:.1%}) spent in the monitor, {seconds_each:.2f} s a snapshot in the background"
        )
