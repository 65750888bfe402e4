"""Snakemake in forks of a process that has it loaded: four fifths of what a start costs is loading and reading code.

A fork does what a start of its own does. What differs between calls is set in it: arguments, environment, output. The jobs
that it starts are forks, too (`forked_jobs`).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import forked_jobs

PATIENCE = 900
"""Seconds that a run may take."""


def snakemake(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """What `python -m snakemake ...` does in the environment of now, to its end, with the code of the project at `home`."""
    server = _server(home)
    with tempfile.TemporaryDirectory() as folder:
        outputs = [str(Path(folder, name)) for name in ("stdout", "stderr")]
        call = {"arguments": command[3:], "environment": dict(os.environ), "outputs": outputs}
        call["executable"] = forked_jobs.server().executable
        print(json.dumps(call), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess(command, status, *(Path(output).read_text() for output in outputs))


@cache
def _server(home: Path) -> subprocess.Popen[str]:
    """It ends with this process, which closes its input."""
    own = [str(home / folder) for folder in ("workflow", "src", "scripts")]
    return subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*own, *sys.path])},
        text=True,
    )


def _load() -> None:
    """What a start imports and reads, but for what depends on the configuration."""
    import pandas  # noqa: F401
    import smart_open  # noqa: F401
    import snakemake.cli
    import snakemake.report

    import config_reading
    import parts  # noqa: F401
    from digests import LIBRARY, SCRIPTS, fingerprint
    from toposcale import checkpoints  # noqa: F401
    from toposcale.analysis import lm_eval  # noqa: F401
    from toposcale.forecasting.logs import loss_curves  # noqa: F401
    from toposcale.monitor import folder  # noqa: F401

    snakemake.cli.get_argument_parser()  # which looks for Snakemake's plugins among all that is installed
    config_reading.schema()
    modules = [".".join(path.relative_to(LIBRARY).with_suffix("").parts) for path in LIBRARY.rglob("*.py")]
    for script in SCRIPTS.glob("*.py"):
        fingerprint(script.name, *modules)
    gc.freeze()  # the forks then share what is loaded


def _fork(arguments: list[str], environment: dict[str, str], outputs: list[str], executable: str) -> int:
    """The exit status of one call."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = executable
    for number, path in enumerate([os.devnull, *outputs]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    signal.alarm(PATIENCE)
    sys.exit(sys.modules["snakemake.cli"].main(arguments))


if __name__ == "__main__":
    _load()
    for line in sys.stdin:
        print(_fork(**json.loads(line)), flush=True)
