"""Run a command of the user when a training under way gives a reason to look at it."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

from toposcale.io.errors import UserError, one_line
from toposcale.monitor.alerts import Alert, AlertKind

PATIENCE = 60.0
"""Seconds after which a command is stopped, so that it does not hold up the page."""


class Notifier:
    """Runs a command once for each alert, until the reason is over; a command that fails is one line on stderr.

    The command is split as a shell would, but no shell runs it; a line of JSON on its standard input tells the reason.
    UserError: a quote in the command is not closed, or it is empty.
    """

    def __init__(self, command: str, folder: str) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise UserError(f"--notify {command}: {str(error).lower()}") from None
        if not self._command:
            raise UserError("--notify: the command is empty")
        self._folder = folder
        self._standing: set[tuple[str, AlertKind]] = set()

    def look(self, alerts: Mapping[str, Sequence[Alert]]) -> None:
        """Run the command for the alerts, by model, that were not there at the last look."""
        standing = {(model, alert.kind): alert for model, of_model in alerts.items() for alert in of_model}
        for (model, kind), alert in standing.items():
            if (model, kind) not in self._standing:
                self._run({"folder": self._folder, "model": model, **alert._asdict()})
        self._standing = set(standing)

    def _run(self, reason: Mapping[str, object]) -> None:
        """Run the command with a reason on its standard input."""
        try:
            done = subprocess.run(
                self._command, input=json.dumps(reason) + "\n", capture_output=True, text=True, timeout=PATIENCE
            )
        except (OSError, subprocess.SubprocessError, UnicodeError) as error:
            problem = str(error)
        else:
            if not done.returncode:
                return
            problem = f"it ended with status {done.returncode}: {done.stderr.strip() or 'no message'}"
        print(f"toposcale: --notify {shlex.join(self._command)}: {one_line(problem)}", file=sys.stderr, flush=True)
