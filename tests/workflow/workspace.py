"""Real Snakemake runs of a small configuration, each in a folder of its own."""

import re
import shutil
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import yaml

import loaded
from paths import ROOT

WORDS = (
    "the shape of a weight tells when a run is worth its compute and when a larger model is due, "
    "or so it is said; the norm says it too "
)


def small_configuration() -> dict:
    """Two models, three checkpoints each, a few seconds in all."""
    return {
        "run": "small",
        "reproduces": ["research_plan", "paper", "embedding_report", "landscape_review"],
        "models": {
            "one": {"d_model": 8, "n_layers": 1, "n_heads": 1},
            "two": {"d_model": 12, "n_layers": 1, "n_heads": 2},
        },
        "corpus": {"source": "files", "train": ["train.txt"], "validation": ["validation.txt"]},
        "training": {
            "steps": 40,
            "checkpoint_every": 8,
            "batch_size": 4,
            "context": 16,
            "warmup_steps": 4,
            "validation_sequences": 8,
            "sketch": {"every": 1},
            "jobs": "model",
        },
        # A job a model: starting jobs is most of what so small a run takes.
        "weights": {"jobs": "model"},
        "embeddings": {"every": 5, "repeats": 2, "jobs": "model"},
        "landscape": {
            "enabled": False,  # they take as long as all the rest
            "every": 5,
            "resolution": 5,
            "path_resolution": 5,
            "planes": {"random": [1.0], "negative": [1.0]},
            "graphs": ["grid8", "grid4"],
            "batch_size": 2,
            "repeats": 1,
            "trace_probes": 2,
            "density_runs": 1,
            "density_steps": 4,
            "jobs": "model",
        },
        "trajectory": {"window": 20},
        "statistics": {"resamples": 50},
    }


@dataclass
class Workspace:
    """A folder with a corpus and a configuration in which the workflow is run."""

    path: Path
    config: dict
    home: Path = ROOT  # whose Snakefile is run

    def command(self, *arguments: str, cores: int = 1) -> list[str]:
        """The call of Snakemake on the configuration as it is now, which is written down first."""
        configuration = self.path / "config.yaml"
        configuration.write_text(yaml.safe_dump(self.config))
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(self.home / "Snakefile")]
        command += ["--directory", str(self.path), "--configfile", str(configuration), "--cores", str(cores)]
        return [*command, "--workflow-profile", str(self.home / "profiles" / "default"), *arguments]

    def snakemake(self, *arguments: str, cores: int = 1, check: bool = True):
        """Run Snakemake; the finished process, output and all."""
        command = self.command(*arguments, cores=cores)
        done = loaded.snakemake(command, self.home)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def planned(self, *arguments: str) -> dict[str, int]:
        """Jobs by rule that a dry run announces."""
        text = self.snakemake("--dry-run", "--quiet", "rules", "--", *arguments).stdout
        return jobs_by_rule(text)

    def pretend_made(self) -> None:
        """Make a finished run by all that Snakemake looks at when it plans: files, their times and its records of them."""
        for line in self.snakemake("--summary").stdout.splitlines()[1:]:
            path = self.path / line.split("\t")[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch() if path.suffix else path.mkdir(exist_ok=True)  # of a fetched checkpoint
        self.snakemake("--touch", "--forceall")

    def followers(self) -> dict[str, set[str]]:
        """For each rule, the rules that read what it makes."""
        graph = self.snakemake("--rulegraph").stdout
        names = dict(re.findall(r'(\d+)\[label = "([^"]+)"', graph))
        found: dict[str, set[str]] = {name: set() for name in names.values()}
        for before, after in re.findall(r"(\d+) -> (\d+)", graph):
            found[names[before]].add(names[after])
        return found

    def copied(self, path: Path) -> "Workspace":
        """The same in another folder, with all that Snakemake knows of it."""
        shutil.copytree(self.path, path)
        return Workspace(path, deepcopy(self.config), self.home)

    @property
    def results(self) -> Path:
        return self.path / "results" / self.config["run"]

    def tables(self) -> dict[str, bytes]:
        """The bytes of every Parquet table."""
        return {path.name: path.read_bytes() for path in sorted((self.results / "tables").glob("*.parquet"))}


def with_landscapes(workspace: Workspace) -> Workspace:
    """The same workspace, its landscapes computed."""
    workspace.config["landscape"]["enabled"] = True
    return workspace


PROJECT = ("Snakefile", "Makefile", "workflow", "scripts", "src", "profiles", "config", "envs", "examples")
LOCKS = (*(f"requirements{part}.lock" for part in ("", "-test", "-peers", "-slurm")), "pyproject.toml")


def copy_project(copy: Path) -> Path:
    """What a run needs of the project, in another folder."""
    copy.mkdir(parents=True)
    for name in (*PROJECT, *LOCKS):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def code_block(page: str, heading: str, language: str) -> str:
    """The first code block of a language under a heading of a page of the project."""
    section = (ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)[1]


def cone(rules, followers: dict[str, set[str]]) -> set[str]:
    """Some rules and everything that follows from them."""
    reached, waiting = set(), list(rules)
    while waiting:
        rule = waiting.pop()
        if rule not in reached:
            reached.add(rule)
            waiting += followers.get(rule, ())
    return reached


def jobs_by_rule(text: str) -> dict[str, int]:
    """The table "Job stats" of Snakemake's output."""
    counts = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit() and words[0] not in ("total", "job"):
            counts[words[0]] = int(words[1])
    return counts


def new_workspace(path: Path) -> Workspace:
    path.mkdir(exist_ok=True)
    sentences = [WORDS[i % len(WORDS) :] + WORDS[: i % len(WORDS)] + str(i) for i in range(300)]
    (path / "train.txt").write_text("\n\n".join(sentences))
    (path / "validation.txt").write_text("\n\n".join(sentences[::7]))
    return Workspace(path, small_configuration())
