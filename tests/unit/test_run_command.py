"""`toposcale run`: stock Snakemake on the workflow of the installation; what the user adds is passed on as it is."""

import sys

import pytest

from paths import ROOT
from toposcale.checkpoints import run_command


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def added(*options):
    """What follows the words that every call has."""
    words = run_command.command("mine.yaml", list(options))
    profile = str(ROOT / "profiles/default")
    fixed = ["--configfile", "mine.yaml", "--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", profile]
    assert words[:9] == [sys.executable, "-m", "snakemake", *fixed]
    return words[9:]


def test_command_passes_options_on_untouched():
    options = ["measured", "--cores", "4", "-n", "--config", "a={b: 'c d'}", "--", "slurm"]
    assert added(*options) == options


def test_command_takes_all_cores_where_nothing_says_how_many():
    assert added() == ["--cores", "all"]
    assert added("--dry-run") == ["--cores", "all", "--dry-run"]
    for option in (["-j4"], ["--cores=2"], ["--executor", "slurm"]):
        assert added(*option) == option


def test_command_finds_a_profile_of_the_workflow(here):
    assert added("--profile", "slurm") == ["--profile", str(ROOT / "profiles/slurm")]
    assert added("--profile", "other") == ["--profile", "other"]
    (here / "home/.config/snakemake/slurm").mkdir(parents=True)
    assert added("--profile", "slurm") == ["--profile", "slurm"]  # the user's own one


def test_call_ends_with_the_status_of_its_command(here):
    assert run_command._call([sys.executable, "-c", "raise SystemExit(3)"]) == 3
