"""Every path, key of the configuration and name of the library that a page has in backticks is there."""

import importlib
import re
import subprocess

import numpy as np
import pytest

import config_reading
import toposcale
from config_reference import keys_of
from paths import ROOT
from toposcale.io import schemas

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
KEYS = {path for path, *_ in keys_of(config_reading.schema())}
SECTIONS = {key.split(".")[0] for key in KEYS}
FLOORS = {path.parent.name for path in (ROOT / "src" / "toposcale").glob("*/__init__.py")}


@pytest.fixture(scope="module")
def tree():
    """Files and folders that are in the repository, from its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = {ROOT / name for name in listed.stdout.splitlines()}
    whole = {path for path in files if path.exists()}
    return {str(part.relative_to(ROOT)) for path in whole for part in (path, *path.parents) if ROOT in part.parents}


def in_backticks(page):
    """The code of a page that stands in a line of text: a block is a command or a file, which other tests run."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))


def resolves(dotted):
    """Whether a name such as toposcale.io.schemas.TABLES can be imported."""
    module, names = dotted, []
    while module:
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, name = module.rpartition(".")
            names.insert(0, name)
            continue
        for name in names:
            if not hasattr(value, name):
                return False
            value = getattr(value, name)
        return True
    return False


def is_there(code, tree):
    """Whether what a page names exists; None for code that names nothing of this repository."""
    if match := re.match(r"toposcale(\.\w+)+", code):
        return resolves(match[0])
    if match := re.fullmatch(r"tables/(\w+)", code):
        return match[1] in schemas.TABLES
    folders = {name for name in tree if "/" not in name}
    if re.fullmatch(r"[\w./*{}-]+", code) and code.split("/")[0] in {*folders, *FLOORS} - {"results"} and "/" in code:
        pattern = re.compile(re.sub(r"\\\{\w+\\\}|\\\*", "[^/]+", re.escape(code.rstrip("/"))))
        return any(pattern.fullmatch(name.removeprefix("src/toposcale/")) or pattern.fullmatch(name) for name in tree)
    if re.fullmatch(r"\w+\.(py|smk)", code):
        return any(name.split("/")[-1] == code for name in tree)
    if (
        re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", code)
        and code.split(".")[0] in SECTIONS
        and not code.endswith((".csv", ".sh"))
    ):
        return code in KEYS
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page, tree):
    assert [code for code in in_backticks(page) if is_there(code, tree) is False] == []


@pytest.mark.parametrize(
    "code",
    [
        "src/toposcale/analysis/nothing.py",
        "homology/nothing.py",
        "profiles/*/nothing.yaml",
        "nothing.py",
        "toposcale.io.schemas.nothing",
        "toposcale.nothing(...)",
        "tables/nothing",
        "weights.nothing",
    ],
)
def test_a_stale_name_is_found(code, tree):
    assert is_there(code, tree) is False


@pytest.mark.parametrize(
    "code",
    [
        "src/toposcale/",
        "homology/rips.py",
        "profiles/*/config.yaml",
        "studies/{study}/",
        "rips.py",
        "toposcale.io.schemas.TABLES",
        "tables/features",
        "weights.max_points",
    ],
)
def test_a_name_that_is_there_is_seen(code, tree):
    assert is_there(code, tree) is True
    assert is_there("abs(w) / max abs(w)", tree) is None


def test_every_key_of_an_advice_is_explained():
    steps = np.arange(200, 6001, 200)
    curve = {"step": steps, "loss": 2.0 + 40 * steps**-0.5}
    schedule = {"shape": "cosine", "steps": 12000, "warmup_steps": 200}
    targets = [{"target_loss": loss} for loss in (2.7, 2.3)]  # was reached; is ahead
    given = {
        "n_parameters": 25e6,
        "tokens_per_step": 5e5,
        "schedule": schedule,
        "known": [{"curve": curve, "n_parameters": 6e6}],
    }
    keys = {key for target in targets for key in toposcale.advise(curve, **given, **target)}
    table = (ROOT / "docs/advice.md").read_text().split("| keys | meaning |")[1].split("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert named == keys


def test_the_page_names_keys_that_a_decay_has():
    steps = np.arange(200, 6001, 200)
    curve = {"step": steps, "loss": 2.0 + 40 * steps**-0.5}
    schedule = {"shape": "constant", "steps": 12000, "warmup_steps": 200}
    decay = toposcale.advise(curve, n_parameters=25e6, tokens_per_step=5e5, schedule=schedule)["decay"]
    row = re.search(r"^\| `decay` \|(.*)\|$", (ROOT / "docs/advice.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row[1])) <= set(decay)
