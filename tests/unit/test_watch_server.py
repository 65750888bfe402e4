"""The server of the watch page: a browser that hangs up leaves no traceback, and the next request is answered."""

import contextlib
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.request

import pytest

from toposcale.__main__ import main
from toposcale.pages.watch import _Server


@contextlib.contextmanager
def watching(folder, *options):
    command = [sys.executable, "-m", "toposcale", "watch", str(folder), "--port", "0", "--every", "0.1", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().split()[0]
        finally:
            process.kill()


def hang_up(address, request, *, after):
    """Send a request, read some bytes of the answer, and reset the connection."""
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    connection.sendall(request)
    if after:
        connection.recv(after)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_watch_server_survives_a_browser_that_hangs_up(tmp_path):
    with watching(tmp_path) as (process, address):
        for request in (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HT",
        ):
            for after in (0, 1, 1000):
                if after < 1000 or request.startswith(b"GET / HTTP"):
                    for _ in range(5):
                        hang_up(address, request, after=after if request.endswith(b"\r\n\r\n") else 0)
        with urllib.request.urlopen(address) as page:
            assert len(page.read()) > 100_000
        with urllib.request.urlopen(address + "data/run") as run:
            assert json.load(run)["name"] == tmp_path.name
            assert run.headers["X-Content-Type-Options"] == "nosniff"
            policy = dict(rule.split(" ", 1) for rule in run.headers["Content-Security-Policy"].split("; "))
            assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self' data:")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert errors == ""
    assert output.strip() == ""


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "1e20"])
def test_watch_command_checks_the_seconds_between_looks(tmp_path, capsys, seconds):
    assert main(["watch", str(tmp_path), "--port", "0", "--every", seconds]) == 1
    assert re.fullmatch(r"toposcale: --every \S+: it must be more than 0 and at most .*\n", capsys.readouterr().err)


def test_watch_ends_for_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "nosuch"), "--port", "0"]) == 1
    line = f"toposcale: {tmp_path}/nosuch: no such folder; if the training makes it later, add --wait\n"
    assert capsys.readouterr().err == line
    state = "Reading."
    with watching(tmp_path / "nosuch", "--wait") as (_, address):
        while state == "Reading.":  # before the first look
            with urllib.request.urlopen(address + "data/run") as run:
                state = json.load(run)["state"]
    assert "nosuch is not there yet: waiting for it." in state


def test_an_error_of_the_server_itself_is_told(capsys):
    server = _Server.__new__(_Server)
    for error, told in ((BrokenPipeError(), False), (ConnectionResetError(), False), (ZeroDivisionError(), True)):
        try:
            raise error
        except Exception:
            server.handle_error(None, ("127.0.0.1", 1))
        assert ("Traceback" in capsys.readouterr().err) == told
