"""Jobs that start with their imports done: a process for each script that has them, and is forked for each of its jobs.

A job of weight features computes for 40 ms and imports for 200; a training job imports PyTorch for a second or two. While a
run goes on on one machine, this server lives beside it. The first job of a script is a fresh Python as always. For
the second the server forks itself a *stem*, which runs the script as far as its imports and definitions; this job and
all later ones are forks of the stem and run the script as `__main__`: a process of their own, that has loaded what a
fresh one would have loaded and nothing else. forkclient.py stands in for the job before Snakemake: it dies with the
job, and the job with it.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

from forkclient import COLD

CLIENT = Path(__file__).with_name("forkclient.py")
LONGEST_REQUEST = 1 << 20


def start() -> tuple[subprocess.Popen[bytes], str]:
    """The server, started, and what to put before `python SCRIPT` in a shell command for it to run it.

    OSError: there is no place for its socket.
    """
    folder = Path(tempfile.mkdtemp(prefix="toposcale-"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(str(folder / "jobs"))
        except OSError:  # a name of more than 107 bytes
            folder.rmdir()
            raise
        listener.listen(64)  # from now on clients wait, also while the server starts
        number = listener.fileno()
        command = [sys.executable, __file__, str(number)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])
    return server, shlex.join([sys.executable, "-I", "-S", str(CLIENT), str(folder / "jobs")])


def stop(server: subprocess.Popen[bytes]) -> None:
    """End a server and wait for its last job. (If the process that started it is killed, it ends by itself.)"""
    server.stdin.close()
    server.wait()


def serve(listener: socket.socket) -> None:
    """Answer clients until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for Snakemake and its jobs
    stems: dict[tuple[str, ...], socket.socket | None] = {}
    address = Path(listener.getsockname())
    while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
        with (
            listener.accept()[0] as client,
            suppress(ConnectionError),
        ):  # a client may be killed at any moment
            answer(client, stems, listener)
    address.unlink()
    address.parent.rmdir()
    for stem in filter(None, stems.values()):
        stem.close()
    reap(wait=True)


def answer(
    client: socket.socket, stems: dict[tuple[str, ...], socket.socket | None], listener: socket.socket
) -> None:
    """Hand a client's job to the stem of its script, or back to the client: the first one, or if the stem is no more."""
    request = client.recv(LONGEST_REQUEST)
    if not request:
        return  # killed in between
    script, environment = parsed(request)
    # Numerical libraries read their number of threads when they are imported.
    key = (Path(script).name.partition(".")[2], environment.get("OMP_NUM_THREADS", ""))
    if key not in stems:
        stems[key] = None
        client.send(COLD)
        return
    try:
        if stems[key] is None:
            stems[key] = grow(script, environment, [*filter(None, stems.values()), listener, client])
        socket.send_fds(stems[key], [request], [client.fileno()])
    except OSError:  # no memory for a stem, or it was killed
        stems[key] = None
        client.send(COLD)


def parsed(request: bytes) -> tuple[str, dict[str, str]]:
    """A request's script and environment."""
    script, *variables = map(os.fsdecode, request.split(b"\0"))
    return script, dict(variable.split("=", 1) for variable in variables)


def grow(script: str, environment: dict[str, str], not_for_the_stem: list[socket.socket]) -> socket.socket:
    """Fork a stem for a script; the socket that takes its requests. OSError: there is no room for one more process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        its.close()
        return ours
    try:
        for inherited in (ours, *not_for_the_stem):
            inherited.close()
        stand_by(its, script, environment)
    finally:
        os._exit(0)  # and never on with what the server was at


def stand_by(requests: socket.socket, script: str, environment: dict[str, str]) -> None:
    """What a stem does: the imports of the script, then a fork for each request, until there are no more."""
    become(script, environment)
    try:
        runpy.run_path(script, run_name="__imports__")
        usable = True
    except BaseException:
        usable = False  # a fresh Python will say what is wrong
    gc.freeze()  # collections in jobs leave these objects, and so their shared memory, alone
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 1)
        reap(wait=not request)
        if not request:
            return
        with socket.socket(fileno=descriptors[0]) as client, suppress(ConnectionError):
            if not usable:
                client.send(COLD)
            elif not os.fork():
                requests.close()
                watch(client, *parsed(request))


def reap(*, wait: bool) -> None:
    """Take note of children that have ended, or wait until all have: so what they used counts as used by this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, 0 if wait else os.WNOHANG)[0]:
            pass


def become(script: str, environment: dict[str, str]) -> None:
    """Make this process look as `python script` would."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = [script]
    sys.path[0] = str(Path(script).parent)


def watch(client: socket.socket, script: str, environment: dict[str, str]) -> None:
    """Run a job in a fork and tell the client how it ended; kill it if the client is no more. Does not return."""
    ended, held = os.pipe()  # that the job alone holds, so that its end is an end of file
    job = os.fork()
    if not job:
        os.close(ended)
        client.close()
        run(script, environment)
    os.close(held)
    if client in select.select([client, ended], [], [])[0]:  # a client says nothing more: this is its end
        os.kill(job, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
    try:
        client.send(str(status).encode())
    finally:
        os._exit(0)


def run(script: str, environment: dict[str, str]) -> None:
    """Run a script to its end as `python script` would. Does not return."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become(script, environment)
    status = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        status = error.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
