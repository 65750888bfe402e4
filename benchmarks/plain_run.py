"""The work of a run in one process and one loop, without the workflow: what the workflow is compared with.

`python -m benchmarks.plain_run CONFIG` plans the jobs of a configuration in the current folder, then calls the same
scripts on the same files, one after the other, and prints the wall seconds of the loop. Planning is not timed.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def planned_jobs(configuration: str) -> list[Any]:
    """Snakemake's jobs in an order in which they can run."""
    from snakemake.api import SnakemakeApi
    from snakemake.settings.types import ConfigSettings, ResourceSettings

    with SnakemakeApi() as api:
        workflow_api = api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(configfiles=[Path(configuration)]),
            snakefile=ROOT / "Snakefile",
        )
        planned = workflow_api.dag()
        with contextlib.redirect_stdout(io.StringIO()):
            planned.printrulegraph()
        dag = workflow_api._workflow.dag
        return [job for level in dag.toposorted() for job in level if job.rule.script]


def as_script_sees_it(job: Any) -> SimpleNamespace:
    """The object `snakemake` of a script; its folders are made as Snakemake would."""
    for path in (*job.output, *job.log):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(
        rule=job.rule.name,
        input=job.input,
        output=job.output,
        params=job.params,
        wildcards=job.wildcards,
        log=job.log,
        threads=1,
        config=job.rule.workflow.globals["config"],
    )


def main() -> None:
    """Plan, then run every job here."""
    sys.path.insert(0, str(ROOT / "scripts"))
    jobs = planned_jobs(sys.argv[1])
    start = time.perf_counter()
    for job in jobs:
        script = importlib.import_module(Path(str(job.rule.script)).stem)
        script.main(as_script_sees_it(job))
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
