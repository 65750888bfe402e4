"""What a user reads on a terminal: one printable line, whatever is written in a file."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from toposcale.__main__ import main
from toposcale.io.errors import one_line, reason_of

ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\x9b\u202e"


@pytest.mark.parametrize("text", ["", "layers.0.weight", "a name, 2 x 3", "café 重み", "~/run-1"])
def test_a_printable_line_stays_as_it_is(text):
    assert one_line(text) == text


def test_control_characters_are_escaped_and_lines_joined():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line(ESCAPES) == r"\x1b[2J\x1b]0;owned\x07 \x9b\u202e"
    assert one_line("\ud800") == r"\ud800"
    assert reason_of(ValueError(ESCAPES)) == f"ValueError: {one_line(ESCAPES)}"


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
