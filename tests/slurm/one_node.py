"""A real SLURM cluster of one node, for as long as a `with` block lasts: munged, slurmctld and slurmd of this machine.

    python tests/slurm/one_node.py COMMAND [ARGUMENT ...]

runs a command on such a cluster: it finds sbatch, squeue and srun on its PATH and a partition called `main`.

Everything lives in one temporary folder and listens on 127.0.0.1 only; nothing under /etc/slurm is read or written. The
daemons are children of this process and end with it, even when it is killed. Needs root and Debian's packages PACKAGES.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("munged", "munge", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun", "setpriv")
HOSTS = Path("/etc/hosts")
PATIENCE = 120.0  # seconds that a daemon may take to come up, or to end, on a busy machine
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])

# linuxproc and task/none stand in for cgroups. The CPUs and the memory of the node are claimed, not checked: it is as large
# as a test wants it to be. What a job takes is checked each second, and a job that takes more memory than it asked for is
# killed. EnforcePartLimits refuses at submission what could never start. A busy machine may answer late (MessageTimeout),
# and a test asks for jobs that ended long ago (MinJobAge).
CONFIGURATION = """\
ClusterName=toposcale
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=100
GresTypes=gpu
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
EnforcePartLimits=ALL
MinJobAge=3600
MessageTimeout=100
KillWait=1
OverTimeLimit=0
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:1 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES DefaultTime=10 MaxTime=1-0 State=UP
"""

# The executor's job step drops every SLURM_ variable before it calls srun, SLURM_CONF with them; srun would then read
# /etc/slurm/slurm.conf, which is not ours.
SRUN = """\
#!/bin/sh
SLURM_CONF={folder}/slurm.conf exec {srun} "$@"
"""


def why_not() -> str:
    """Why there can be no cluster here, in a line; empty where there can."""
    missing = [program for program in PROGRAMS if not shutil.which(program, path=SEARCH_PATH)]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install --no-install-recommends {' '.join(PACKAGES)}"
    if os.geteuid():
        return "SLURM's daemons need root"
    return ""


@contextmanager
def cluster(cpus: int = 4, memory: int = 16_000) -> Iterator[dict[str, str]]:
    """A running cluster of one node with `cpus`, `memory` in MB and a pretended GPU; the environment of its users.

    RuntimeError: a daemon does not come up, with the last lines of its log.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toposcale-slurm-")))
        stack.callback(_end_processes, folder)
        stack.enter_context(_own_name_is_loopback())
        environment = _write_configuration(folder, cpus, memory)
        munged = ["munged", "--foreground", "--origin=lo", "--num-threads=2"]
        munged += [f"--{name}={folder}/munge.{name[:3]}" for name in ("key-file", "pid-file", "seed-file", "log-file")]
        munged += [f"--socket={folder}/munge.socket"]
        configured = ["-D", "-f", f"{folder}/slurm.conf"]
        for command, is_up in (
            (munged, lambda: _succeeds(["munge", "--no-input", f"--socket={folder}/munge.socket"], environment)),
            (["slurmctld", *configured], lambda: _succeeds(["scontrol", "ping"], environment)),
            (["slurmd", *configured], lambda: "idle" in _output(["sinfo", "-h", "-o", "%T"], environment)),
        ):
            stack.enter_context(_daemon(command, environment, folder, is_up))
        stack.callback(_end_jobs, environment)
        yield environment


def _write_configuration(folder: Path, cpus: int, memory: int) -> dict[str, str]:
    """Write what the daemons read; the environment in which they and their users run."""
    folder.chmod(0o711)
    ports = _free_ports(2)
    values = {"folder": folder, "host": _host(), "cpus": cpus, "memory": memory}
    text = CONFIGURATION.format(controller_port=ports[0], node_port=ports[1], **values)
    (folder / "slurm.conf").write_text(text)
    (folder / "plugstack.conf").touch()
    # A pretended GPU has to be a device file, or SLURM hands out no CUDA_VISIBLE_DEVICES.
    (folder / "gres.conf").write_text(f"NodeName={_host()} Name=gpu File=/dev/null\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    (folder / "state").mkdir(0o700)
    (folder / "spool").mkdir(0o755)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    programs = folder / "bin"
    programs.mkdir()
    (programs / "srun").write_text(SRUN.format(folder=folder, srun=shutil.which("srun", path=SEARCH_PATH)))
    (programs / "srun").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    path = os.pathsep.join([str(programs), SEARCH_PATH])
    return {**inherited, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}


@contextmanager
def _daemon(
    command: Sequence[str], environment: dict[str, str], folder: Path, is_up: Callable[[], bool]
) -> Iterator[None]:
    """A daemon in the foreground, from when it answers until the end of the block. It dies with this process."""
    log = folder / f"{command[0]}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        if not _within(PATIENCE, lambda: process.poll() is not None or is_up()) or process.poll() is not None:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"{command[0]} did not come up:\n{tail}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_jobs(environment: dict[str, str]) -> None:
    """End every job and wait until the node has let go of it: a job's processes are not children of this process."""

    def jobs() -> list[str]:
        return _output(["squeue", "--noheader", "--format=%A"], environment).split()

    for options in ([], ["--full", "--signal=KILL"]):
        if jobs():
            _output(["scancel", "--quiet", *options, *jobs()], environment)
        if _within(PATIENCE / 2, lambda: not jobs()):
            return


def _end_processes(folder: Path) -> None:
    """End what outlived its job, and wait until it has ended.

    Without control groups, SLURM loses sight of a process whose parent ended first.
    """

    def killed() -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"SLURM_CONF={folder}/" in (process / "environ").read_text(errors="replace"):
                    os.kill(int(process.name), signal.SIGKILL)
                    found.append(int(process.name))
            except OSError:
                pass  # it has ended
        return found

    _within(PATIENCE, lambda: not killed())


@contextmanager
def _own_name_is_loopback() -> Iterator[None]:
    """Let this machine's name mean 127.0.0.1: the daemons listen at the address of that name, and nowhere else.

    Where it means something else already, a line stands in /etc/hosts until the end of the block.
    """
    if _address() == "127.0.0.1":
        yield
        return
    before = HOSTS.read_bytes()
    # Written in place: in a container the file is a mount, which cannot be replaced.
    HOSTS.write_bytes(f"127.0.0.1 {_host()}\n".encode() + before)
    try:
        if _address() != "127.0.0.1":
            raise RuntimeError(f"the host name {_host()} does not resolve to 127.0.0.1, though /etc/hosts says so")
        yield
    finally:
        HOSTS.write_bytes(before)


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _address() -> str:
    """What a new process resolves this machine's name to."""
    return _output(["getent", "ahostsv4", _host()], dict(os.environ)).split(" ")[0]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true in that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _output(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stdout


def _succeeds(command: Sequence[str], environment: dict[str, str]) -> bool:
    return subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, check=False).returncode == 0


def main(command: Sequence[str]) -> int:
    """Run a command on a cluster and return its exit status."""
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    reason = why_not()
    if reason:
        print(f"no SLURM here: {reason}", file=sys.stderr)
        return 1
    with cluster() as environment:
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
