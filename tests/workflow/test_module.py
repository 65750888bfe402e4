"""The workflow inside another one, as the workflow catalog has it: `module:` in a Snakefile of the user's."""

import subprocess
import sys

import pytest
import yaml

from loaded import PATIENCE
from paths import ROOT

pytestmark = pytest.mark.workflow

OUTER = """
configfile: "outer.yaml"


module toposcale:
    snakefile:
        {snakefile!r}
    config:
        config["toposcale"]


use rule * from toposcale as toposcale_*


rule answer:
    input:
        "results/small/training/one.parquet",
    output:
        "answer.txt",
    default_target: True
    shell:
        "ls {{input}} > {{output}}"
"""


def outer(workspace, *arguments):
    (workspace.path / "outer.smk").write_text(OUTER.format(snakefile=str(ROOT / "workflow" / "Snakefile")))
    (workspace.path / "outer.yaml").write_text(yaml.safe_dump({"toposcale": workspace.config}))
    command = [sys.executable, "-m", "snakemake", "--snakefile", "outer.smk", "--cores", "2", *arguments]
    return subprocess.run(command, cwd=workspace.path, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_another_workflow_uses_this_one_as_a_module(workspace):
    workspace.config["training"] |= {"steps": 8, "warmup_steps": 1}
    planned = outer(workspace, "--dry-run", "--", "toposcale_all")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "toposcale_weight_features" in planned.stdout
    done = outer(workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (workspace.path / "answer.txt").read_text().strip() == "results/small/training/one.parquet"
