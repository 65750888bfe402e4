"""How a job ends: what it leaves in its log."""

import subprocess
import sys

from paths import ROOT

JOB = """
import logging, sys
from types import SimpleNamespace

sys.path.append({scripts!r})
snakemake = SimpleNamespace(log="job.log", rule="job", params={{}}, output=[])
import _job

@_job.script
def main(snakemake):
    with open(snakemake.log, "a") as file:  # as a training does
        file.write("step 0 of 400: the first line of the progress" + chr(10))
    logging.info("a line of the script")
    raise OSError("no room")
"""


def test_log_of_a_job_that_fails_keeps_its_progress(tmp_path):
    command = [sys.executable, "-c", JOB.format(scripts=str(ROOT / "scripts"))]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    lines = (tmp_path / "job.log").read_text().splitlines()
    assert lines[0] == "step 0 of 400: the first line of the progress"
    assert lines[1].endswith(" a line of the script")
    assert lines[2].endswith(" no room")
