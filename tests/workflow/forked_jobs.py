"""The jobs of a run in forks of one process that has their libraries loaded: importing is most of what so small a job does.

Snakemake starts a job with `sys.executable`, which `loaded.snakemake` sets to a command made here. It asks the process for
a fork, and runs Python itself where a fork would not do the same: for anything but a script, and where the environment has
something that Python or a library reads when it starts.
"""

import gc
import importlib
import json
import logging
import os
import re
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import NamedTuple

LIBRARIES = (
    *(
        "gudhi",
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_svg",
        "matplotlib.figure",
        "pandas",
        "persim",
    ),
    *("pyarrow.compute", "pyarrow.parquet", "safetensors.numpy", "scipy.cluster.hierarchy", "scipy.optimize"),
    *(
        "scipy.sparse.csgraph",
        "scipy.spatial.distance",
        "scipy.special",
        "scipy.stats",
        "seaborn",
        "snakemake.script",
        "torch",
    ),
)
HONOURED = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Server(NamedTuple):
    """The process, which ends with this one, and the folder of what leads to it."""

    process: subprocess.Popen
    folder: tempfile.TemporaryDirectory

    @property
    def executable(self) -> str:
        """Path of the command that takes the place of Python."""
        return str(Path(self.folder.name, "python"))


@cache
def server() -> Server:
    """Start the process."""
    folder = tempfile.TemporaryDirectory(prefix="toposcale-jobs-")
    address = Path(folder.name, "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        number = listener.fileno()
        environment = os.environ | dict.fromkeys(THREADS, "1")
        # It sees by the end of its standard input that this process is gone.
        command = [sys.executable, __file__, str(number)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, pass_fds=[number])
    made = Server(process, folder)
    asking = shlex.join([sys.executable, "-IS", __file__, str(address)])
    Path(made.executable).write_text(f'#!/bin/sh\nexec {asking} "$@"\n')
    Path(made.executable).chmod(0o755)
    return made


def ask(address: str, arguments: list[str]) -> int:
    """Run a script in a fork, as Python would here and now; return its exit status."""
    environment = dict(os.environ)
    is_script = len(arguments) == 1 and arguments[0].endswith(".py")
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    at_start = set(filter(re.compile("PYTHON").match, environment)) - HONOURED
    at_start |= {path for path in paths if os.path.exists(os.path.join(path, "sitecustomize.py"))}
    if not is_script or at_start or any(environment.get(name) != "1" for name in THREADS):
        os.execv(sys.executable, [sys.executable, *arguments])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"\n"], [0, 1, 2])
        call = {"script": arguments[0], "folder": os.getcwd(), "environment": environment, "paths": paths}
        connection.sendall(json.dumps(call).encode() + b"\n")
        status = int(connection.makefile().readline())
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


def serve(listener: socket.socket) -> None:
    """Fork for every call, until standard input ends."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # the forks then share what is loaded
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who answer
    while True:
        if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(connection)
            os._exit(0)
        connection.close()


def answer(connection: socket.socket) -> None:
    """Run one script in a fork of its own, and send its exit status."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    call = json.loads(connection.makefile().readline())
    job = os.fork()
    if job == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environment"])
        sys.argv = [call["script"]]
        sys.path[:1] = [str(Path(call["script"]).parent), *call["paths"]]
        os._exit(run(call["script"]))
    status = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
    connection.sendall(f"{status}\n".encode())


def run(script: str) -> int:
    """Run a script; return its exit status. To take down all that is loaded would take longer than most jobs."""
    try:
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
