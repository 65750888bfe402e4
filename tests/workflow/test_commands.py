"""Every command that README, docs/ and notebooks print does what it says, in a folder with a space in its path.

The environment lies elsewhere. What the doors of the README and the pages behind them print is run as it stands;
a run that would take long is planned.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.numpy import save_file

from loaded import PATIENCE
from paths import ROOT
from small_hub import Repository, SmallHub
from tiny_model import save_checkpoints
from toposcale.__main__ import _COMMANDS, _parser

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("commands")]

README = (ROOT / "README.md").read_text()
PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
CHECKPOINTS = README.split("\n## Checkpoints\n")[1].split("\nIn a clone, ")[0]

# Added to every configuration that is printed: the same run, shorter.
SHORTER = {
    "training": {
        **{"steps": 20, "checkpoint_every": 5, "batch_size": 2, "context": 16, "warmup_steps": 2},
        **{"validation_sequences": 4, "jobs": "model"},
    },
    "weights": {"jobs": "model"},
    "embeddings": {"enabled": False},
    "statistics": {"resamples": 10},
}


def blocks(text, language=""):
    """The code blocks of a language, or of none."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for name, block in fenced if name == language]


def commands(text):
    """The lines of the code blocks without a language, and what stands in backticks and is a command."""
    lines = "".join(blocks(text)).replace("\\\n", " ").splitlines()
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = [re.sub(r"\s+#.*", "", line).strip() for line in [*lines, *spans]]
    starts = ("make ", ".venv/bin/", "snakemake ", "python ", "toposcale ", "PYTHONPATH=", "sbatch ")
    return list(dict.fromkeys(line for line in found if line.startswith(starts)))


ADVICE = [
    command
    for command in commands(PAGES["forecasting"])
    if command.startswith(("toposcale advise", "make advice CONFIG="))
]
"""From a loss curve to advice: the command of the library, and that of a run."""


def printed_configurations():
    """Every whole configuration that a page prints by its name, with the further models of the page on own models."""
    blocks_of_pages = [block for page in (README, *PAGES.values()) for block in blocks(page, "yaml")]
    printed = {config["run"]: config for block in blocks_of_pages if "run" in (config := yaml.safe_load(block))}
    assert set(printed) == {"mine", "curve", "live"}
    _, added = blocks(PAGES["own-models"], "yaml")
    models = printed["mine"]["models"]
    models |= yaml.safe_load(added)["models"]
    # The same repository, with three of its checkpoints.
    models["pythia-70m"]["steps"] = models["pythia-70m"]["steps"][::5]
    return printed


def notebook_text():
    cells = [
        cell.source
        for path in sorted((ROOT / "examples").glob("*.ipynb"))
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
    ]
    return "\n".join(cells)


@pytest.fixture(scope="module")
def place(project, tmp_path_factory):
    """The project's copy with what the README names in it, and an environment of another path."""
    environment = tmp_path_factory.mktemp("elsewhere") / "env"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(Path(sys.prefix) / name)
    for name in (".runtime", ".test"):  # what `make` looks at to see whether there is something to install
        (environment / name).touch()
    generator = np.random.default_rng(0)
    for folder in (project, project / "my-run"):
        for step in (100, 200, 300, 400, 500):
            checkpoint = folder / f"checkpoint-{step}"
            checkpoint.mkdir(parents=True)
            shapes = {"model.layers.0.attn.weight": (12, 6), "model.layers.0.mlp.weight": (18, 6)}
            weights = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
            save_file(weights, checkpoint / "model.safetensors")
            history = [{"step": at, "loss": 2 + 30 / at, "learning_rate": 1e-3} for at in range(10, step + 1, 10)]
            history += [{"step": at, "eval_loss": 2.1 + 30 / at} for at in range(100, step + 1, 100)]
            history.sort(key=lambda row: row["step"])  # as a Trainer writes it: a later log begins as an earlier one
            state = {
                "global_step": step,
                "max_steps": 1000,
                "num_input_tokens_seen": 524288 * step,
                "log_history": history,
            }
            (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    curves = pd.read_csv(ROOT / "src/toposcale/datasets/data/curves.csv.gz").set_index("run")
    curve = curves.loc["multi-power-law-25m-cosine-24000"]
    curve[curve["step"] <= 9600].to_csv(project / "losses.csv", index=False)
    for name, config in printed_configurations().items():
        (project / f"{name}.yaml").write_text(yaml.safe_dump(config | SHORTER))
    return project, environment


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """What the README's repository is here: a tiny model at each of the steps that are named."""
    folder = tmp_path_factory.mktemp("hub")
    saved = list(save_checkpoints(folder / "saved").values())
    steps = printed_configurations()["mine"]["models"]["pythia-70m"]["steps"]
    files = [{file.name: file.read_bytes() for file in one.iterdir()} for one in saved]
    branches = {f"step{step}": files[i] for i, step in enumerate(steps)}
    with SmallHub() as running:
        running.repositories["EleutherAI/pythia-70m"] = Repository(branches | {"main": files[-1]}, {})
        yield {"HF_ENDPOINT": running.url, "HF_HOME": str(folder / "home")}


def started(place, command, **variables):
    """A command as it is printed, begun: only `.venv` is another folder."""
    project, environment = place
    command = command.replace(".venv/", f"{environment}/")
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    # As from a terminal: not inside the `make` that runs the tests, which would count as its parent.
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    given = outside | {"VENV": str(environment), "PATH": path, "PYTHONPATH": str(project / "src")} | variables
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=project,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def shell(place, command, **variables):
    """Run a command as it is printed, to its end."""
    process = started(place, command, **variables)
    output, _ = process.communicate(timeout=2 * PATIENCE)
    return subprocess.CompletedProcess(command, process.returncode, output)


def last_line(done):
    return done.stdout.rstrip().splitlines()[-1]


def done_as_printed(place, command, **variables):
    """What a command prints, which ends well and, for a run, with the path of its report."""
    done = shell(place, command, **variables)
    assert done.returncode == 0, command + done.stdout
    if run := re.match(r"make run CONFIG=(\w+).yaml", command):
        report = f"results/{run[1]}/report.html"
        assert last_line(done).split() == ["Report:", report]
        assert (place[0] / report).exists()
    return done.stdout


def test_checkpoints_as_the_readme_and_its_page_have_them(place, hub):
    project, _ = place
    compare, init, run = commands(CHECKPOINTS)
    assert "position_embedding.weight" in done_as_printed(place, compare)
    shorter = (project / "mine.yaml").read_text()
    (project / "mine.yaml").unlink()
    assert "my-run: 9 checkpoints, steps 80 to 400" in done_as_printed(place, init)
    assert yaml.safe_load((project / "mine.yaml").read_text())["models"].keys() == {"my-run"}
    (project / "mine.yaml").write_text(shorter)
    own = commands(PAGES["own-models"])
    assert own[:3] == ["make run CONFIG=mine.yaml", "make advice CONFIG=mine.yaml", "toposcale init FOLDER"]
    done_as_printed(place, own[0], **hub)
    told = done_as_printed(place, own[1], **hub)
    under_way = set(re.findall(r"^(\S+): step [\d,]+ of", told, re.MULTILINE))
    finished = set(re.findall(r"^(\S+): finished at step", told, re.MULTILINE))
    unknown = set(re.findall(r"^(\S+): no loss of it is known", told, re.MULTILINE))
    assert under_way | finished | unknown == set(printed_configurations()["mine"]["models"]), told
    assert "trainer" in under_way
    [as_json] = [command for command in own if command.endswith("--json")]
    assert {advice["model"] for advice in json.loads(done_as_printed(place, as_json))["models"]} == under_way
    assert "Nothing to be done" in done_as_printed(place, run, **hub)


def test_a_loss_curve_as_the_readme_and_its_page_have_it(place):
    [printed] = [command for command in commands(README) if command.startswith("toposcale advise examples")]
    longer, in_a_run, before_its_start, of_the_folder = ADVICE
    for command, size in ((printed, "2 x this run"), (longer, "100M")):
        told = done_as_printed(place, command)
        assert "this run: step 16,000 of 24,000" in told
        assert f"scale up to {size}" in told
        assert "=> " in told
    told = done_as_printed(place, before_its_start)
    assert "this run: step 0 of 20,000" in told
    assert "start 0.5 x this run" in told
    told = done_as_printed(place, in_a_run)
    assert "current: step 11,888 of 24,000" in told
    assert "=> " in told
    assert told.endswith(done_as_printed(place, of_the_folder))


def test_a_training_under_the_monitor_as_its_page_has_it(place):
    program = blocks(PAGES["monitor"], "python")[0]
    given = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
batches = range(200)
def train_step(model, batch):
    return model(torch.ones(6)).square().mean()
"""
    project, _ = place
    (project / "training.py").write_text(given + program)
    done_as_printed(place, "python training.py")
    assert "make watch FOLDER=topology" in commands(PAGES["monitor"])
    [watch] = [command for command in commands(PAGES["monitor"]) if command.startswith("toposcale watch topology")]
    assert re.search(r"http://127\.0\.0\.1:\d+", watched(place, watch))
    advice = "make advice CONFIG=live.yaml"
    assert advice in commands(PAGES["monitor"])
    assert re.search(r"^watched: step 200 of 5,000", done_as_printed(place, advice), re.MULTILINE)


def watched(place, command):
    """The first line of a page's server, which is then ended by Ctrl-C."""
    project, environment = place
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    given = os.environ | {"PATH": path, "PYTHONPATH": str(project / "src"), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command.split(), cwd=project, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        return process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


def test_the_library_alone_as_the_page_has_it(place):
    given = """
import torch
from torch.nn.functional import cross_entropy
model, images, labels = torch.nn.Linear(4, 2), torch.ones(3, 4), torch.tensor([0, 1, 0])
"""
    (place[0] / "library.py").write_text(given + "\n".join(blocks(PAGES["library"], "python")))
    done_as_printed(place, "python library.py")


RUN_ABOVE = {
    *(command for text in (CHECKPOINTS, PAGES["own-models"]) for command in commands(text)),
    *ADVICE,
    *(command for command in commands(PAGES["monitor"]) if "live.yaml" in command or "watch topology" in command),
}
ALL = "\n".join([README, *PAGES.values(), (ROOT / "CONTRIBUTING.md").read_text(), notebook_text()])


TARGET = re.compile(r"\.venv/bin/snakemake --cores \d (\w\S*)")


def others():
    """The commands that are not run above; those that make one target of the default run are one, and planned at once."""
    left = [command for command in commands(ALL) if command not in RUN_ABOVE]
    targets = {command: made[1] for command in left if (made := TARGET.fullmatch(command))}
    return [command for command in left if command not in targets] + [
        f".venv/bin/snakemake --cores 1 {' '.join(targets.values())}"
    ]


@pytest.mark.parametrize("command", others())
def test_any_other_command_is_planned_without_complaint(place, command):
    words = shlex.split(command)
    if command.startswith("toposcale --"):
        done_as_printed(place, command)
        return
    if words[0] == "sbatch":
        assert any((ROOT / word).is_file() for word in words[1:])
        return
    if words[0].startswith(("python", "toposcale", "PYTHONPATH=")) and "snakemake" not in words:
        is_there(words)
        return
    for folder in (place[0], place[0] / "wikitext-2"):
        folder.mkdir(exist_ok=True)
        for name in ("train.txt", "valid.txt", "test.txt"):
            (folder / name).write_text("to be read " * 500)
    if "CONFIG=config/paper.yaml" not in command and words[0] == "make":
        command += " --dry-run"  # make's own: every target that is named is there
    elif "--unlock" not in words:
        command = command.replace("snakemake ", "snakemake --quiet all --dry-run ", 1)
    if "slurm" in command and words[0] != "make":
        pytest.importorskip("snakemake_executor_plugin_slurm", reason="SLURM's plugin is not installed")
    done = shell(place, command)
    assert done.returncode == 0, done.stdout


def is_there(words):
    """Asserts that the program of a long measurement, and every option that is given to it, exist."""
    if words[0] == "toposcale":
        arguments = words[1 : words.index(">") if ">" in words else None]
        # A subcommand that is mentioned by itself stands without its arguments.
        assert _parser(arguments).parse_args(arguments).function if arguments[1:] else arguments[0] in _COMMANDS
        return
    programs = [
        path
        for word in words
        for place in (ROOT / word.replace(".", "/"), ROOT / "src" / word.replace(".", "/"))
        for path in (ROOT / word, place.with_suffix(".py"), place / "__main__.py")
        if path.is_file() and path.suffix == ".py"
    ]
    assert programs
    text = "".join(program.read_text() for program in programs)
    assert [word for word in words if word.startswith("--") and f'"{word}"' not in text] == []


def test_a_missing_configuration_is_one_line(place):
    for target in ("run", "advice", "unlock"):
        done = shell(place, f"make {target} CONFIG=missing.yaml")
        assert done.returncode != 0
        said = [line for line in done.stdout.splitlines() if not line.startswith("make: ***")]
        assert said == ["toposcale: missing.yaml: no such configuration; name one with CONFIG=FILE"]


@pytest.mark.parametrize(
    ("goals", "meant"),
    [
        (["run", "mine.yaml"], "run CONFIG=mine.yaml"),
        (["config/pythia.yaml"], "run CONFIG=config/pythia.yaml"),  # a file that is there
        (["advice", "mine.yml"], "advice CONFIG=mine.yml"),
    ],
)
def test_a_configuration_without_its_variable_is_one_line_and_not_the_default_run(goals, meant):
    done = subprocess.run(["make", *goals], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert f"toposcale: make {meant} is how" in line


@pytest.mark.parametrize("cores", ["0", "-1", "1.5", "many", ""])
def test_cores_that_are_none_are_one_line(cores):
    command = ["make", "--dry-run", "run", f"CORES={cores}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"CORES={cores}, but it must be all, or a number of at least 1" in done.stderr.splitlines()[-1]


def test_code_in_a_configuration_is_refused_before_snakemake_runs_it(place):
    text = "__use_yte__: true\n__definitions__:\n  - import os\n  - os.mkdir('owned')\n"
    (place[0] / "code.yaml").write_text(text + (place[0] / "mine.yaml").read_text())
    for target in ("run", "advice", "unlock"):
        said = shell(place, f"make {target} CONFIG=code.yaml").stdout.splitlines()
        assert said[-2].startswith("toposcale: code.yaml: holds __use_yte__, with which Snakemake runs Python")
    assert not (place[0] / "owned").exists()


def test_a_run_that_was_killed_is_unlocked_by_the_command_of_its_last_line(place):
    command = "make run CONFIG=curve.yaml"
    locks = place[0] / ".snakemake" / "locks"
    process = started(place, command)
    while process.poll() is None and not (locks.is_dir() and any(locks.iterdir())):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    said = shell(place, command).stdout.splitlines()
    assert said[-2].endswith("if it was killed: make unlock")
    assert shell(place, "make unlock").returncode == 0
    assert not any(locks.glob("*"))


def test_clean_says_what_it_leaves_and_distclean_removes_it(tmp_path):
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "results" / "README.md").write_text("kept")
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".venv").mkdir()
    make = ["make", "-f", str(ROOT / "Makefile"), "VENV=.venv"]
    done = subprocess.run([*make, "clean"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not (tmp_path / ".venv").exists()
    assert (tmp_path / "results" / "mine").exists()
    assert "Left: results/, .snakemake/" in done.stdout
    subprocess.run([*make, "distclean"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["README.md"]
