"""A job that the fork server runs does what `python SCRIPT` does, and lives and dies with its client."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forkserver

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fork server is for Linux")

SCRIPT = """
import json, os, sys
import wave  # stands for PyTorch

if __name__ == "__main__":
    {body}
"""
TELL = "print(json.dumps([os.getpid(), sys.argv, sys.path[0], __file__, os.environ['JOB'], 'wave' in sys.modules]))"


class Server:
    """A fork server, and jobs of one rule that are handed to it."""

    def __init__(self, folder: Path):
        self.folder, self.jobs = folder, 0
        self.clients: set[int] = set()

    def __enter__(self) -> "Server":
        self.process, before = forkserver.start()
        self.before = shlex.split(before)
        self.address = Path(self.before[-1])
        return self

    def __exit__(self, *_) -> None:
        forkserver.stop(self.process)
        assert self.process.returncode == 0
        assert not self.address.parent.exists()

    def start(self, body: str, script: str = SCRIPT) -> subprocess.Popen:
        """The client of a job."""
        self.jobs += 1
        # As Snakemake writes them: a name for each job before the name of the rule's script.
        path = self.folder / f"tmp{self.jobs}.rule.py"
        path.write_text(script.format(body=body))
        client = subprocess.Popen(
            [*self.before, sys.executable, str(path)], env=os.environ | {"JOB": "a = b\n"}
        )
        self.clients.add(client.pid)
        return client

    def run(self, body: str, script: str = SCRIPT) -> int:
        return self.start(body, script).wait(timeout=30)


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def test_later_jobs_are_forks_and_see_what_the_first_one_saw(server, capfd):
    with server:
        clients = [server.start(TELL)]
        assert clients[0].wait(timeout=30) == 0
        clients += [server.start(TELL), server.start(TELL)]
        assert [client.wait(timeout=30) for client in clients] == [0, 0, 0]
        told = sorted(
            (json.loads(line) for line in capfd.readouterr().out.splitlines()), key=lambda one: one[1]
        )
        pids, *_ = zip(*told, strict=True)
        assert pids[0] == clients[0].pid  # the first client became its job
        assert len({*pids, *(client.pid for client in clients)}) == 5
        for k, (_, arguments, first_path, file, variable, loaded) in enumerate(told, start=1):
            assert arguments == [file] == [str(server.folder / f"tmp{k}.rule.py")]
            assert first_path == str(server.folder)
            assert (variable, loaded) == ("a = b\n", True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('a message')", 1),
        ("raise ValueError('a defect')", 1),
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), 9)", -9),
        ("os.kill(os.getpid(), 15)", -15),
    ],
)
def test_a_job_ends_as_it_would_alone(server, capfd, body, status):
    with server:
        said = []
        for _ in range(3):
            assert server.run(body) == status
            said.append(capfd.readouterr().err.splitlines()[-1:])
        assert said[0] == said[1] == said[2]


def test_a_script_that_fails_above_its_jobs_fails_as_it_would_alone(server, capfd):
    with server:
        for _ in range(3):
            assert server.run("pass", "import no_such_module") == 1
            assert capfd.readouterr().err.endswith("ModuleNotFoundError: No module named 'no_such_module'\n")


def test_a_killed_client_takes_its_job_along(server, tmp_path):
    with server:
        os.mkfifo(tmp_path / "pid")
        server.run("pass")
        client = server.start(
            f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); import signal; signal.pause()"
        )
        job = int((tmp_path / "pid").read_text())
        assert job != client.pid
        client.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while Path(f"/proc/{job}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        client.wait(timeout=30)


def children(process: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_a_killed_stem_is_grown_again(server, capfd):
    with server:
        assert [server.run("pass"), server.run("pass")] == [0, 0]
        (stem,) = children(server.process.pid)
        os.kill(stem, signal.SIGKILL)
        while Path(f"/proc/{stem}/stat").read_text().split(") ")[1][0] != "Z":
            time.sleep(0.01)
        assert [server.run(TELL), server.run(TELL)] == [0, 0]
        cold, warm = (json.loads(line)[0] for line in capfd.readouterr().out.splitlines())
        assert cold in server.clients
        assert warm not in server.clients


def test_a_client_that_is_killed_while_it_hands_over_stops_nobody(server):
    with server:
        for _ in range(3):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(server.address))
                connection.send(b"/no/such/tmp1.rule.py\0A=b")
        assert [server.run("pass"), server.run("raise SystemExit(3)")] == [0, 3]
        assert server.process.poll() is None


def test_jobs_run_side_by_side(server, tmp_path):
    """Two jobs that wait for each other: one after the other they would never end."""
    with server:
        pipes = [str(tmp_path / name) for name in ("one", "other")]
        for pipe in pipes:
            os.mkfifo(pipe)
        server.run("pass")
        meet = "open({!r}, {!r}).close(); open({!r}, {!r}).close()"
        clients = [
            server.start(meet.format(pipes[0], "w", pipes[1], "r")),
            server.start(meet.format(pipes[0], "r", pipes[1], "w")),
        ]
        assert [client.wait(timeout=30) for client in clients] == [0, 0]


def test_without_a_server_the_client_runs_the_job_itself(tmp_path, server, capfd):
    with server:
        server.before[-1] = str(tmp_path / "nobody listens here")
        assert server.run(TELL) == 0
        assert json.loads(capfd.readouterr().out)[0] > 0


def test_the_server_ends_with_the_process_that_started_it():
    folder = str(Path(forkserver.__file__).parent)
    code = f"import sys; sys.path[:0] = [{folder!r}]; import forkserver; server, before = forkserver.start(); print(before)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    # Its standard output is the server's too, so that `run` came back means that the server is gone.
    assert not Path(shlex.split(said.stdout)[-1]).parent.exists()


def test_a_place_that_is_too_long_for_a_socket_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(OSError, match="too long"):
        forkserver.start()
    assert list(folder.iterdir()) == []
