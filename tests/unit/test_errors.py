"""What a user reads on a terminal: one printable line, whatever is written in a file."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from toposcale.__main__ import main
from toposcale.io.errors import message_of, one_line, reason_of

ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\x9b\u202e"


@pytest.mark.parametrize("text", ["", "layers.0.weight", "a name, 2 x 3", "café 重み", "~/run-1"])
def test_a_printable_line_stays_as_it_is(text):
    assert one_line(text) == text


def test_control_characters_are_escaped_and_lines_joined():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line(ESCAPES) == r"\x1b[2J\x1b]0;owned\x07 \x9b\u202e"
    assert one_line("\ud800") == r"\ud800"
    missing = FileNotFoundError(2, "No such file or directory", "a.csv")
    assert reason_of(missing) == message_of(missing) == "a.csv: no such file or directory"
    assert message_of(OSError(28, "1 GB are needed")) == "[Errno 28] 1 GB are needed"
    assert reason_of(ValueError(ESCAPES)) == f"ValueError: {one_line(ESCAPES)}"


@pytest.mark.parametrize("command", ["check", "advise", "curves"])
def test_names_and_labels_in_a_log_cannot_write_to_the_terminal(tmp_path, capsys, command):
    path = tmp_path / f"{ESCAPES}log.csv"
    rows = [
        f"{step},{rank},{3 + 8 / (1 + step / 50)},1" for step in range(0, 3000, 50) for rank in (f"a{ESCAPES}", "b")
    ]
    path.write_text("\n".join([f"step,rank,loss,{ESCAPES}", *rows]).replace("\r", "") + "\n")
    facts = ["--n-parameters", "50e6", "--tokens-per-step", "5e5", "--schedule", "constant", "--steps", "6000"]
    assert (
        main([command, *[str(path)] * (2 if command == "curves" else 1), *(facts if command != "check" else [])]) == 0
    )
    shown = capsys.readouterr()
    assert r"\x1b[2J" in shown.out
    assert all(character.isprintable() or character == "\n" for character in shown.out + shown.err)


def test_names_in_a_table_for_a_terminal_are_escaped_and_in_a_file_as_they_are(tmp_path, capsys, monkeypatch):
    weight = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    save_file({f"{ESCAPES}weight": weight}, tmp_path / "odd.safetensors")
    for flags in ([], ["--all"]):
        arguments = ["describe", str(tmp_path / "odd.safetensors"), "--csv", *flags]
        assert main(arguments) == 0
        assert "\x1b[2J" in capsys.readouterr().out
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout.isatty", lambda: True)
            assert main(arguments) == 0
            assert r"\x1b[2J" in (shown := capsys.readouterr().out)
            assert all(character.isprintable() or character == "\n" for character in shown)


def test_names_in_a_file_of_weights_cannot_write_to_the_terminal(tmp_path, capsys):
    weight = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    save_file({f"{ESCAPES}weight": weight}, tmp_path / "odd.safetensors")
    assert main(["describe", str(tmp_path / "odd.safetensors")]) == 0
    shown = capsys.readouterr().out
    assert r"\x1b[2J" in shown
    save_file({f"{ESCAPES}weight": np.ones((2, 2), np.int8)}, tmp_path / "odd.safetensors")
    assert main(["describe", str(tmp_path / "odd.safetensors")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("toposcale: ")
    assert r"\x1b[2J" in error
    assert all(character.isprintable() or character == "\n" for character in shown + error)
