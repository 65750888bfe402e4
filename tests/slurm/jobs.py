"""What the tests ask of a SLURM cluster, and how they wait for it."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PATIENCE = 1800
"""Seconds after which something hangs. A busy machine may need a good part of them: linters run with these tests."""


@dataclass
class Job:
    """A job as squeue tells of it; `name` is the identifier of the run, `limit` is in minutes and `memory` in MB."""

    number: str
    name: str
    state: str
    limit: int
    memory: int
    comment: str


@dataclass
class Cluster:
    """A running cluster and the environment of its users."""

    environment: dict[str, str]

    def call(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def jobs(self, comment: str = "", *states: str) -> list[Job]:
        """The jobs, oldest first, whose comment (rule and wildcards) has a part, in one of the states if any is given."""
        text = self.call("squeue", "--noheader", "--states=all", "--sort=i", "--format=%A|%j|%T|%l|%m|%k")
        rows = [line.split("|", 5) for line in text.splitlines()]
        jobs = [Job(*row[:3], _minutes(row[3]), int(row[4].rstrip("M")), *row[5:]) for row in rows]
        return [job for job in jobs if comment in job.comment and (not states or job.state in states)]

    def cancel(self, name: str) -> None:
        """Cancel the jobs of a run, and wait until they are gone."""
        self.call("scancel", "--name", name)
        wait_for(lambda: not self.call("squeue", "--noheader", "--name", name))


def _minutes(limit: str) -> int:
    """D-HH:MM:SS, HH:MM:SS or MM:SS as minutes."""
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes = ([0, *parts] if len(parts) == 2 else parts)[:2]
    return (int(days or 0) * 24 + hours) * 60 + minutes


def wait_for(look: Callable[[], Any], running: subprocess.Popen | None = None) -> Any:
    """The first answer of `look` that is not empty. Fails after a while, or when `running` has ended."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert running is None or running.poll() is None, "the run ended too early"
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.25)
    return found
