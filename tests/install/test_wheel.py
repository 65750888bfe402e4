"""The wheel in an empty environment: the lines for users of only the library run there, without torch or snakemake."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import digests
from oldest import copy_distributed
from paths import ROOT


def run(*command, folder):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )


def built(folder):
    """The wheel, built from a copy, since a build leaves files in the sources, and takes up those of an earlier one."""
    (folder / "project").mkdir()
    copy_distributed(folder / "project")
    wheel = "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, folder / "project"
    done = run(sys.executable, "-m", "pip", *wheel, folder=folder)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("toposcale-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel: `make release` tests the one that it built."""
    return os.environ.get("TOPOSCALE_WHEEL") or built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def with_workflow(wheel, tmp_path_factory):
    """An environment that holds only the wheel, and finds the packages of the one that runs the tests."""
    environment = tmp_path_factory.mktemp("workflow") / "env"
    run(sys.executable, "-m", "venv", environment, folder=environment.parent)
    [site] = environment.glob("lib/python3*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", wheel
    done = run(*command, folder=environment.parent)
    assert done.returncode == 0, done.stderr
    return environment


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with an environment that holds the wheel and what it asks for, and two checkpoints."""
    folder = tmp_path_factory.mktemp("installed")
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
        ("run", "mine.yaml"): "run needs snakemake: pip install 'toposcale[workflow]'",
        ("watch", "."): "watch needs matplotlib: pip install 'toposcale[watch]'",
    }
    for command, line in lines.items():
        done = run(installed / "env/bin/toposcale", *command, folder=installed)
        assert (done.returncode, done.stderr) == (1, f"toposcale: {line}\n")
    done = run(installed / "env/bin/python", "-c", "from toposcale.monitor import TopologyMonitor", folder=installed)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: TopologyMonitor needs torch: pip install 'toposcale[monitor]'"
    )


def test_toposcale_run_works_in_an_empty_folder_without_a_clone(with_workflow, tmp_path):
    folder = tmp_path / "an empty folder"
    (folder / "my run").mkdir(parents=True)
    for step in (10, 20, 30):
        weights = np.random.default_rng(step).standard_normal((12, 8)).astype(np.float32)
        save_file({"layers.0.attn.weight": weights}, folder / f"my run/step-{step}.safetensors")
    (folder / "my run/losses.csv").write_text("step,loss\n" + "".join(f"{i},{4 - i / 50}\n" for i in range(2, 31, 2)))
    toposcale = with_workflow / "bin/toposcale"
    assert run(toposcale, "init", "my run", folder=folder).stdout.endswith("then: toposcale run mine.yaml\n")
    dry = run(toposcale, "run", "mine.yaml", "--cores", "2", "--dry-run", folder=folder)
    assert dry.returncode == 0, dry.stderr
    assert "weight_features" in dry.stdout
    assert not (folder / "results").exists()
    slurm = run(toposcale, "run", "mine.yaml", "--profile", "slurm", "--dry-run", folder=folder)
    assert "toposcale/_workflow/profiles/slurm" in slurm.stderr
    part = run(toposcale, "run", "mine.yaml", "--until", "weight_features", folder=folder)
    assert part.returncode == 0, part.stdout + part.stderr
    done = run(toposcale, "run", "mine.yaml", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "rule weight_features:" not in done.stdout + done.stderr  # it goes on from where it was
    assert done.stdout.splitlines()[-1] == "Report:   results/mine/report.html"
    assert (folder / "results/mine/report.html").exists()
    (folder / ".snakemake/locks").mkdir(exist_ok=True)
    (folder / ".snakemake/locks/0.output.lock").write_text("results/mine/report.html\n")
    (folder / "results/mine/report.html").unlink()
    locked = run(toposcale, "run", "mine.yaml", folder=folder)
    assert locked.stderr.endswith("if it was killed: toposcale run mine.yaml --unlock\n")
    assert run(toposcale, "run", "mine.yaml", "--unlock", folder=folder).returncode == 0
    assert not list((folder / ".snakemake").glob("locks/*"))


def test_fingerprints_are_those_of_the_clone(with_workflow, tmp_path):
    """What was made in a clone is not made again by the wheel."""
    [folder] = with_workflow.glob("lib/python3*/site-packages/toposcale/_workflow")
    program = "import digests, sys; print(*map(digests.fingerprint, sys.argv[1:]))"
    names = [path.name for path in sorted((ROOT / "scripts").glob("*.py"))]
    done = run(
        with_workflow / "bin/python",
        "-c",
        f"import sys; sys.path.insert(0, {str(folder / 'workflow')!r}); {program}",
        *names,
        folder=tmp_path,
    )
    assert done.stdout.split() == [digests.fingerprint(name) for name in names]


def watched(toposcale, folder, *command):
    """What the page of `toposcale watch` says of the first model of a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    watch = [toposcale, "watch", *command, "--port", "0", "--every", "0.2"]
    with subprocess.Popen(watch, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[0]
            while True:  # before the first look there is no model
                with suppress(HTTPError), urlopen(address + "data/model-0") as part:
                    return json.load(part)["advice"]
        finally:
            process.kill()


PLAIN_TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
text = torch.randint(0, 16, (400,))
model = nn.Sequential(nn.Embedding(16, 64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
with open("my-run/log.csv", "w") as log:
    print("step,train_loss,val_loss", file=log)
    for step in range(1, 121):
        loss = nn.functional.cross_entropy(model(text[:199]), text[1:200])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            validation = nn.functional.cross_entropy(model(text[200:399]), text[201:400])
        print(step, loss.item(), validation.item() if step % 5 == 0 else "", sep=",", file=log)
        if step % 20 == 0:
            torch.save(model.state_dict(), f"my-run/step-{step}.pt")
"""


def test_a_plain_training_is_checked_compared_and_watched(with_workflow, tmp_path):
    """Random text has nothing to learn, so that the validation loss rises: the run overfits."""
    python, toposcale = with_workflow / "bin/python", with_workflow / "bin/toposcale"
    (tmp_path / "my-run").mkdir()
    assert run(python, "-c", PLAIN_TRAINING, folder=tmp_path).returncode == 0
    assert "120 steps from 1 to 120" in run(toposcale, "check", "my-run/log.csv", folder=tmp_path).stdout
    compared = run(toposcale, "compare", "my-run/step-20.pt", "my-run/step-120.pt", folder=tmp_path)
    assert compared.stdout.split()[:3] == ["layer", "shape", "change"], compared.stderr
    assert "unrelated" not in compared.stdout
    size = "--n-parameters", "6224", "--tokens-per-step", "199", "--schedule", "constant", "--warmup-steps", "0"
    advised = run(toposcale, "advise", "my-run/log.csv", *size, "--steps", "400", folder=tmp_path)
    assert "the validation loss is rising" in advised.stdout
    assert "Known all the same:" in advised.stdout
    (tmp_path / "note.py").write_text("import sys; open('reasons.jsonl', 'a').write(sys.stdin.read())")
    page = watched(toposcale, tmp_path, "my-run", "--notify", f"{python} note.py")
    assert page.startswith("Alert: since step 120 the validation loss is rising")
    assert "Has it finished learning? It no longer improves" in page
    assert "the training loss has fallen since: overfitting" in page
    assert "What changed most, and where? The norm of " in page


TRAINER = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from toposcale.monitor import TopologyCallback

torch.manual_seed(0)
texts = (torch.arange(8) + torch.arange(64)[:, None]) % 16
data = [{"input_ids": text, "labels": text} for text in texts]
model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2))
callback = TopologyCallback("topology", "watched", every=5, when_busy="wait", tensorboard=False)
quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
arguments = TrainingArguments("out", max_steps=20, learning_rate=1e-2, **quiet)
Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
"""


def test_a_trainer_with_the_monitor_is_watched(with_workflow, tmp_path):
    done = run(with_workflow / "bin/python", "-c", TRAINER, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "topology/models/watched.json").read_text())
    assert (facts["optimizer"], facts["final_step"], facts["tokens_per_step"]) == ("adamw", 20, 64)
    page = watched(with_workflow / "bin/toposcale", tmp_path, "topology")
    assert "Has it finished learning? Still learning: at the present slope" in page
    assert "Between two checkpoints " in page
    assert page.endswith("The last of 20 steps is done.")


def test_two_logs_are_compared_for_a_paper(with_workflow, tmp_path):
    for name in ("losses.csv", "losses-wsd.csv"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    schedules = "--schedule", "cosine", "wsd", "--warmup-steps", "2160", "--decay-start", "-", "20000"
    plan = "--n-parameters", "25e6", "--tokens-per-step", "524288", *schedules, "--steps", "24000", "--final", "0.1"
    command = with_workflow / "bin/toposcale", "curves", "losses.csv", "losses-wsd.csv", *plan
    printed = run(*command, "--plot", "curves.pdf", folder=tmp_path)
    assert printed.stdout.startswith("At step 11,888: losses.csv has the lower loss"), printed.stderr
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads(run(*command, "--json", folder=tmp_path).stdout)
