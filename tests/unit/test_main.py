"""The command line as a whole: help, hints, quiet and verbose, completion, and files that stay out of git."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

import toposcale.__main__
from paths import ROOT
from toposcale.__main__ import main
from toposcale.io.files import write_text


def test_main_without_arguments_prints_its_help(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: toposcale [-h]")


@pytest.mark.parametrize(("command", "is_hinted"), [("check a.csv b.csv", False), ("advise a.csv 50e6", True)])
def test_main_hints_at_options_that_the_command_has(command, is_hinted, capsys):
    with pytest.raises(SystemExit):
        main(command.split())
    assert ("--sizes" in capsys.readouterr().err) == is_hinted


def test_main_verbose_shows_the_traceback_of_an_error(capsys):
    assert main(["describe", "missing"]) == 1
    brief = capsys.readouterr().err
    assert brief.count("\n") == 1
    assert main(["describe", "missing", "-v"]) == 1
    text = capsys.readouterr().err
    assert text.startswith("Traceback")
    assert text.endswith(brief)


@pytest.fixture
def folder(tmp_path):
    """Three checkpoints of a training."""
    for step in (10, 20, 30):
        weights = np.random.default_rng(step).standard_normal((8, 4)).astype(np.float32)
        save_file({"h.0.w": weights}, tmp_path / f"step-{step}.safetensors")
    return tmp_path


def test_describe_counts_checkpoints_on_a_terminal(folder, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["describe", str(folder)]) == 0
    shown = capsys.readouterr().err
    assert "Checkpoint 3 of 3" in re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert main(["describe", str(folder), "--quiet"]) == 0
    assert "Checkpoint" not in capsys.readouterr().err


def test_main_quiet_leaves_out_warnings(folder, capsys):
    save_file({"h.0.w": np.full((4, 4), np.nan, dtype=np.float32)}, folder / "nan.safetensors")
    for options, is_warned in (([], True), (["-q"], False)):
        assert main(["describe", str(folder / "nan.safetensors"), *options]) == 0
        assert ("toposcale: " in capsys.readouterr().err) == is_warned


def test_metric_command_reads_the_standard_input(tmp_path, capsys, monkeypatch):
    noise = np.random.default_rng(0).standard_normal(60)
    text = "step,loss,mine\n" + "".join(f"{i},{3 + 9 / i + noise[i] / 99},{noise[-i]}\n" for i in range(1, 60))
    (tmp_path / "log.csv").write_text(text)
    for file in ("-", str(tmp_path / "log.csv")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["test-metric", file, "--metric", "mine", "--warmup-steps", "0", "--csv"]) == 0
    piped, named = capsys.readouterr().out.split("question,metric")[1:]
    assert piped == named


def test_advise_names_the_standard_input_and_not_its_copy(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"nothing here\n")))
    assert main(["advise", "-"]) == 1
    assert capsys.readouterr().err.startswith("toposcale: standard input: ")


def test_print_completion_has_every_command_and_its_options(capsys):
    pytest.importorskip("shtab", reason="shtab is not installed")
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "bash"])
    assert not end.value.code
    script = capsys.readouterr().out
    [names] = re.findall(r"^_shtab_toposcale_subparsers=\((.*)\)", script, re.MULTILINE)
    assert names.split() == list(toposcale.__main__._COMMANDS)
    assert "_shtab_toposcale_check_pos_0_COMPGEN=_shtab_compgen_files" in script
    assert "--loss-column" in script


def test_write_text_names_the_file_that_was_meant(tmp_path):
    name = "x" * 245 + ".yaml"  # as long as a name may be, which the temporary one is longer than
    with pytest.raises(OSError, match="name too long") as error:
        write_text(tmp_path / name, "text")
    assert error.value.filename == str(tmp_path / name)


def test_what_tutorials_make_is_ignored_by_git():
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs/tutorials").glob("*.md")])
    made = {"my-training/metrics.csv", "my-run/checkpoint-100", "changes.svg"} | set(re.findall(r"[a-z]+\.yaml", pages))
    command = ["git", "check-ignore", *made]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert {*done.stdout.split()} == made
