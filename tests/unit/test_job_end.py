"""How a job or command ends: what it leaves in its log, and without a search for garbage in what it loaded."""

import subprocess
import sys

from paths import ROOT

JOB = """
import atexit, gc, sys
from types import SimpleNamespace

sys.path.append({scripts!r})
snakemake = SimpleNamespace(log="job.log", rule="job", params={{}}, output=[])
atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count()))

def collections():
    return sum(generation["collections"] for generation in gc.get_stats())

import _job
earlier = collections()
import pandas

@_job.script
def main(snakemake):
    print(collections() - earlier, gc.isenabled(), gc.get_freeze_count())
"""


def test_what_is_loaded_is_not_searched_for_garbage(tmp_path):
    text = JOB.format(scripts=str(ROOT / "scripts"))
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (during_imports, enabled, loaded), (left, frozen) = map(str.split, done.stdout.splitlines())
    assert int(during_imports) == 0
    assert enabled == "True"
    assert int(loaded) > 50_000
    assert int(left) < 0.01 * int(loaded)
    assert int(frozen) > 0.9 * int(loaded)
    assert (tmp_path / "job.cost.json").exists()


def test_log_of_a_job_that_fails_keeps_its_progress(tmp_path):
    code = (
        JOB.partition("import _job")[0]
        + """
import _job, logging
@_job.script
def main(snakemake):
    with open(snakemake.log, "a") as file:  # as a training does
        file.write("step 0 of 400: the first line of the progress" + chr(10))
    logging.info("a line of the script")
    raise OSError("no room")
"""
    )
    command = [sys.executable, "-c", code.format(scripts=str(ROOT / "scripts"))]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    lines = (tmp_path / "job.log").read_text().splitlines()
    assert lines[0] == "step 0 of 400: the first line of the progress"
    assert lines[1].endswith(" a line of the script")
    assert lines[2].endswith(" no room")


def test_a_command_ends_without_a_last_collection():
    code = """
import atexit, gc, sys
atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count()))
from toposcale.__main__ import main
main(["check", sys.argv[1]])
"""
    command = [sys.executable, "-c", code, str(ROOT / "examples" / "losses.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    left, frozen = map(int, done.stdout.splitlines()[-1].split())
    assert left < 0.01 * frozen
