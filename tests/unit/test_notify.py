"""The command of the user that `toposcale watch --notify` runs: once a reason, without a shell, and never the end."""

import json
import shlex
import sys

import pytest

from toposcale.io.errors import UserError
from toposcale.monitor.alerts import Alert, AlertKind
from toposcale.pages import notify
from toposcale.pages.notify import Notifier

RISING = Alert(AlertKind.RISING, 300, "the validation loss is rising: $(touch broken) `x` ; 'quoted'")
SPIKE = Alert(AlertKind.SPIKE, 200, "the loss is 9")


@pytest.fixture
def script(tmp_path):
    """A command that adds its standard input and its arguments to a file, and that file."""
    path, told = tmp_path / "a script.py", tmp_path / "told.jsonl"
    path.write_text(
        "import json, sys\n"
        "with open(sys.argv[1], 'a') as file:\n"
        "    print(json.dumps([json.loads(sys.stdin.read()), sys.argv[2:]]), file=file)\n"
    )
    return shlex.join([sys.executable, str(path), str(told)]), told


def told_to(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_notifier_runs_once_a_reason_until_it_is_over(script):
    command, told = script
    notifier = Notifier(command, "my-run")
    for alerts in ([], [RISING], [RISING], [RISING, SPIKE], [SPIKE], [RISING._replace(step=400)]):
        notifier.look({"a": alerts})
    assert [(reason["kind"], reason["step"]) for reason, _ in told_to(told)] == [
        ("rising", 300),
        ("spike", 200),
        ("rising", 400),
    ]
    assert told_to(told)[0][0] == {"folder": "my-run", "model": "a", "kind": "rising", **RISING._asdict()}
    notifier.look({"a": [RISING], "b": [RISING]})
    assert [reason["model"] for reason, _ in told_to(told)] == ["a", "a", "a", "b"]


def test_notifier_hands_arguments_over_as_they_are(script, tmp_path, monkeypatch):
    """No shell reads them: neither a variable nor a command in them, nor what the reason holds."""
    monkeypatch.chdir(tmp_path)
    command, told = script
    Notifier(f"{command} '$HOME' ; touch broken | cat *", "my-run").look({"a": [RISING]})
    [(reason, arguments)] = told_to(told)
    assert arguments == ["$HOME", ";", "touch", "broken", "|", "cat", "*"]
    assert reason["message"] == RISING.message
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("/no/such/command -x", "No such file or directory"),
        (shlex.join([sys.executable, "-c", "import sys; sys.exit('no\\nmail')"]), "it ended with status 1: no"),
        (shlex.join([sys.executable, "-c", "import time; time.sleep(99)"]), "timed out after 0.5 seconds"),
        (shlex.join([sys.executable, "-c", ""]), None),
    ],
)
def test_notifier_says_in_one_line_that_a_command_failed(command, line, capsys, monkeypatch):
    monkeypatch.setattr(notify, "PATIENCE", 0.5 if line and "timed" in line else 60.0)
    Notifier(command, "my-run").look({"a": [RISING]})
    output = capsys.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert len(lines) == (line is not None)
    if line:
        assert lines[0].startswith("toposcale: --notify ")
        assert line in lines[0]


@pytest.mark.parametrize(("command", "line"), [("mail 'me", "no closing quotation"), ("  ", "the command is empty")])
def test_notifier_refuses_a_command_that_is_none(command, line):
    with pytest.raises(UserError, match=line):
        Notifier(command, "my-run")
