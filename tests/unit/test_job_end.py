"""What a job or command loads is not searched for garbage, which would take longer than many jobs do."""

import subprocess
import sys

from paths import ROOT

JOB = """
import atexit, gc, sys
from types import SimpleNamespace

sys.path.append({scripts!r})
snakemake = SimpleNamespace(log="job.log", rule="job", params={{}})
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
