"""`pip install .`: every command works with it, or says in one line which extra it needs, before it computes."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from paths import ROOT
from toposcale import __main__

# The packages of the extras, by the names of their modules; what these install in turn goes without them.
EXTRAS = {
    *(
        "torch",
        "transformers",
        "tokenizers",
        "huggingface_hub",
        "httpx2",
        "lightning",
        "pytorch_lightning",
        "tensorboard",
    ),
    *(
        "jinja2",
        "markupsafe",
        "matplotlib",
        "persim",
        "plotly",
        "pydantic",
        "ripser",
        "seaborn",
        "shtab",
        "sklearn",
        "snakemake",
        "yaml",
    ),
}
WITHOUT_THEM = f"""
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
NAMED = ("--n-parameters", "25e6", "--tokens-per-step", "5e5", "--schedule", "cosine", "--steps", "24000")
COMMANDS = [
    (["describe", "model.safetensors"], ""),
    (["describe", "model.safetensors", "--plot", "a.png"], "a picture needs matplotlib: pip install 'toposcale[plot]'"),
    (["describe", "old.pt"], "old.pt: a file of PyTorch, which needs torch: pip install 'toposcale[monitor]'"),
    (["compare", "model.safetensors", "model.safetensors"], ""),
    (["compare", "old.pt", "old.pt", "--plot", "a.svg"], "a picture needs matplotlib: pip install 'toposcale[plot]'"),
    (["init", "run"], ""),
    (["advise", "losses.csv", *NAMED, "--sizes", "1e8"], ""),
    (["advise", "missing.csv", "--plot", "a.png"], "a picture needs matplotlib: pip install 'toposcale[plot]'"),
    (["curves", "losses.csv", "losses.csv", *NAMED], ""),
    (["check", "losses.csv"], ""),
    (["check", "missing.csv", "--latex"], "--latex needs jinja2: pip install 'toposcale[watch]'"),
    (["run", "mine.yaml"], "run needs snakemake: pip install 'toposcale[workflow]'"),
    (["--print-completion", "bash"], "--print-completion needs shtab: pip install 'toposcale[completion]'"),
    (["test-metric", "metric.csv", "--metric", "mine"], ""),
    (["benchmark", "--plot", "a.png"], "a picture needs matplotlib: pip install 'toposcale[plot]'"),
    (["watch", "run"], "watch needs matplotlib: pip install 'toposcale[watch]'"),
]


def slim(folder, program, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", WITHOUT_THEM + program, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def toposcale(folder, *arguments):
    return slim(folder, "runpy.run_module('toposcale', run_name='__main__', alter_sys=True)", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slim")
    weights = {"layers.0.attn.weight": np.random.default_rng(0).random((6, 5))}
    save_file(weights, folder / "model.safetensors")
    for step in (100, 200):
        (folder / f"run/checkpoint-{step}").mkdir(parents=True)
        save_file(weights, folder / f"run/checkpoint-{step}/model.safetensors")
    torch.save({"a.weight": torch.ones(4, 3)}, folder / "old.pt")
    losses = (f"{step},{2 + step**-0.5},{step % 7}\n" for step in range(10, 3000, 10))
    (folder / "metric.csv").write_text("step,loss,mine\n" + "".join(losses))
    (folder / "losses.csv").write_bytes((ROOT / "examples/losses.csv").read_bytes())
    return folder


@pytest.mark.parametrize(
    ("arguments", "error"), COMMANDS, ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else ""
)
def test_a_command_of_a_slim_install_works_or_names_an_extra(folder, arguments, error):
    done = toposcale(folder, *arguments)
    assert "Traceback" not in done.stderr, done.stderr
    assert (
        (done.stderr.splitlines()[-1:], done.returncode) == ([f"toposcale: {error}"], 1)
        if error
        else not done.returncode
    )


def test_every_command_is_tried_in_a_slim_install():
    assert {arguments[0] for arguments, _ in COMMANDS} == {*__main__._COMMANDS, "--print-completion"}


def test_help_of_every_command_works_in_a_slim_install(folder):
    program = """
from toposcale import __main__
for name in sys.argv[1:]:
    try:
        __main__.main([name, "--help"])
    except SystemExit as end:
        assert not end.code
"""
    done = slim(folder, program, *__main__._COMMANDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: toposcale") == len(__main__._COMMANDS)


@pytest.mark.parametrize("module", ["monitor import TopologyMonitor", "landscape import random_directions"])
def test_what_needs_pytorch_names_its_extra(folder, module):
    done = slim(folder, f"from toposcale.{module}")
    name = module.rpartition(" ")[2]
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: {name} needs torch: pip install 'toposcale[monitor]'"
    )
