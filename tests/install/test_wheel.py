"""The wheel in an empty environment: the lines for users of the library alone run there, without torch or snakemake."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from paths import ROOT


def run(*command, folder):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )


def built(folder):
    """The wheel, built from a copy, since a build leaves files beside the sources, and takes up those of an earlier one."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (folder / "project").mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / "project")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "project/src", ignore=ignored)
    wheel = "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, folder / "project"
    done = run(sys.executable, "-m", "pip", *wheel, folder=folder)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("toposcale-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with an environment that holds the wheel and what it asks for, and two checkpoints."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = os.environ.get("TOPOSCALE_WHEEL") or built(folder)  # `make release` tests the one that it built
    run(sys.executable, "-m", "venv", folder / "env", folder=folder)
    done = run(folder / "env/bin/python", "-m", "pip", "install", "--quiet", "--no-compile", wheel, folder=folder)
    if done.returncode:
        pytest.skip(f"no package index to install from: {done.stderr.strip().splitlines()[-1]}")
    for step in (100, 500):
        (folder / f"checkpoint-{step}").mkdir()
        weights = np.random.default_rng(step).standard_normal((24, 8)).astype(np.float32)
        named = {"model.layers.0.attn.weight": weights, "model.layers.0.mlp.weight": weights[:16] + 1}
        save_file(named, folder / f"checkpoint-{step}" / "model.safetensors")
    save_file(named, folder / "model.safetensors")
    return folder


def test_the_slim_install_has_neither_torch_nor_snakemake(installed):
    done = run(installed / "env/bin/python", "-m", "pip", "list", "--format", "freeze", folder=installed)
    names = {line.partition("==")[0].lower() for line in done.stdout.splitlines()}
    assert "toposcale" in names
    assert not {"torch", "snakemake", "transformers", "matplotlib"} & names


def test_the_lines_for_users_of_the_library_run(installed):
    python = installed / "env/bin/python"
    table = run(python, "-m", "toposcale", "describe", "model.safetensors", "--layers", "*attn*", folder=installed)
    assert table.returncode == 0, table.stderr
    assert "model.layers.0.attn.weight" in table.stdout
    assert "mlp" not in table.stdout
    csv = run(installed / "env/bin/toposcale", "describe", "model.safetensors", "--all", "--csv", folder=installed)
    assert csv.stdout.startswith("layer,feature,value\n")
    program = """
import toposcale
described = toposcale.describe("checkpoint-500")
assert described.index[-1] == "all" and described["frobenius_norm"].gt(0).all()
moved = toposcale.changes_of("checkpoint-100", "checkpoint-500")
assert moved.query("feature == 'h0_wasserstein_1'")["change"].gt(0).all()
"""
    done = run(python, "-c", program, folder=installed)
    assert done.returncode == 0, done.stderr
    moved = run(python, "-m", "toposcale", "compare", "checkpoint-100", "checkpoint-500", folder=installed)
    assert moved.returncode == 0, moved.stderr
    assert "model.layers.0.attn.weight" in moved.stdout
    curves = pd.read_csv(ROOT / "src/toposcale/datasets/data/curves.csv.gz").set_index("run")
    curve = curves.loc["multi-power-law-25m-cosine-24000"]
    curve[curve["step"] <= 9600].to_csv(installed / "losses.csv", index=False)
    plan = "--schedule", "cosine", "--warmup-steps", "2160", "--steps", "24000", "--sizes", "100e6"
    size = "--n-parameters", "25e6", "--tokens-per-step", "524288"
    advised = run(python, "-m", "toposcale", "advise", "losses.csv", *size, *plan, folder=installed)
    assert advised.returncode == 0, advised.stderr
    assert "scale up to 100M" in advised.stdout
    missing = run(python, "-m", "toposcale", "describe", "missing.safetensors", folder=installed)
    assert missing.returncode == 1
    assert missing.stderr == "toposcale: missing.safetensors: no such checkpoint\n"
    assert "compare" in run(python, "-m", "toposcale", "--help", folder=installed).stdout


def test_the_published_runs_with_a_licence_are_in_the_wheel(installed):
    python = installed / "env/bin/python"
    program = """
from toposcale.datasets import load_published_runs
runs = load_published_runs()
assert len(runs) > 200 and all(source.licence for source in runs.sources.values())
load_published_runs("xlstm")
"""
    done = run(python, "-c", program, folder=installed)
    assert "UserError: xlstm: NX-AI/xlstm_scaling_laws states no licence" in done.stderr
    assert "AssertionError" not in done.stderr
    listed = run(python, "-m", "toposcale.datasets", "modded-nanogpt", folder=installed)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.count("KellerJordan/modded-nanogpt") == 9


def test_a_bin_file_says_that_it_needs_torch(installed):
    (installed / "old.bin").write_bytes(b"\x80\x02}q\x00.")
    done = run(installed / "env/bin/python", "-m", "toposcale", "describe", "old.bin", folder=installed)
    assert done.returncode == 1
    assert done.stderr == "toposcale: old.bin: a file of PyTorch, which needs torch: pip install 'toposcale[monitor]'\n"


def test_every_command_of_the_slim_install_shows_its_help(installed):
    toposcale = installed / "env/bin/toposcale"
    commands = re.findall(
        r"^    ([a-z][a-z-]*)(?: |$)", run(toposcale, "--help", folder=installed).stdout, re.MULTILINE
    )
    assert {"describe", "watch"} <= set(commands)
    for command in commands:
        done = run(toposcale, command, "--help", folder=installed)
        assert (done.returncode, done.stderr) == (0, ""), command


def test_what_the_slim_install_lacks_is_named_with_its_extra(installed):
    lines = {
        (
            "describe",
            "model.safetensors",
            "--plot",
            "a.png",
        ): "a picture needs matplotlib: pip install 'toposcale[plot]'",
        ("watch", "."): "watch needs matplotlib: pip install 'toposcale[watch]'",
    }
    for command, line in lines.items():
        done = run(installed / "env/bin/toposcale", *command, folder=installed)
        assert (done.returncode, done.stderr) == (1, f"toposcale: {line}\n")
    done = run(installed / "env/bin/python", "-c", "from toposcale.monitor import TopologyMonitor", folder=installed)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: TopologyMonitor needs torch: pip install 'toposcale[monitor]'"
    )
