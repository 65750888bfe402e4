"""The tutorials as they are printed: their commands run, and what they print is what stands there."""

import re
import subprocess
import sys

import pandas as pd
import pytest

from paths import ROOT
from workspace import Workspace

sys.path.insert(0, str(ROOT / "docs"))
import reference

TUTORIAL = (ROOT / "docs/tutorials/checkpoints.md").read_text()
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.mark.parametrize("path", reference.WITH_OUTPUT, ids=lambda path: path.stem)
def test_what_stands_below_a_command_or_a_program_is_what_it_prints(path):
    text = path.read_text()
    assert reference.with_outputs(text) == text, "run make reference"


def test_an_output_that_is_not_what_is_printed_is_found():
    page = "```console\n$ toposcale check \\\n    examples/losses.csv\nold\n```\n\n"
    page += "```python\nprint(1)\n```\n\n```text\n2\n```\n"
    again = reference.with_outputs(page)
    assert "examples/losses.csv: CSV separated by commas, 77 steps" in again
    assert again.endswith("```text\n1\n```\n")
    assert "old" not in again


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL, re.DOTALL | re.MULTILINE)


def is_alike(line, expected, rel):
    """Whether two lines have the same words, and numbers that differ by at most `rel`."""
    words = [NUMBER.sub("#", text).split() for text in (line, expected)]
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (line, expected)]
    return words[0] == words[1] and numbers[0] == pytest.approx(numbers[1], rel=rel)


def assert_alike(printed, expected, rel):
    """Every line of the page is printed, with the digits that hold on other processors."""
    shown = [line for line in expected.splitlines() if line != "..."]
    assert [line for line in shown if not any(is_alike(other, line, rel) for other in printed.splitlines())] == []


@pytest.mark.workflow
def test_from_checkpoints_to_a_figure(tmp_path):
    """The script, `describe`, the run and the program of the tutorial, in a folder of its own."""
    trained, losses, described, answer, shown = blocks("text")
    train, _, describe = (blocks("sh")[index].split() for index in (1, 1, 2))

    def called(*command):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert called(str(ROOT / train[1]), train[2]) == trained
    assert_alike((tmp_path / "my-training/metrics.csv").read_text(), losses, rel=1e-4)
    assert_alike(called("-m", *describe), described, rel=1e-3)
    [configuration] = blocks("yaml")
    (tmp_path / "tutorial.yaml").write_text(configuration)
    command = [*Workspace(tmp_path, {}).command(), "--configfile", "tutorial.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = tmp_path / "results/tutorial"
    for row in TUTORIAL.partition("| you want to show")[2].splitlines()[2:6]:
        for name in re.findall(r"`(\w+\.(?:svg|csv|parquet))`", row):
            assert list(results.glob(f"*/{name}")), name
    [program] = blocks("python")
    assert_alike(called("-c", program), shown, rel=1e-2)
    summary = (results / "tables/summary.csv").read_text()
    assert answer.partition(";")[0] in summary
    power, printed = (float(re.search(r"correlations of ([\d.]+) or more", text)[1]) for text in (summary, answer))
    assert power == pytest.approx(printed, abs=0.02)
    verdicts = pd.read_csv(results / "tables/verdicts.csv").query("question == 'beyond_the_norm' and layer == 'all'")
    assert verdicts["q"].min() > float(re.search(r"every q above ([\d.]+)\)", TUTORIAL)[1])
    n_following, n_features = map(int, re.search(r"(\d+) of (\d+) features follow", TUTORIAL).groups())
    assert abs(int(re.search(rf"(\d+) of {n_features} features", summary)[1]) - n_following) <= 2  # by the processor
