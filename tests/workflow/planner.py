"""Many dry runs of one folder, in forks of one process that has Snakemake loaded: a third of the time of as many starts.

`planner.py FOLDER` reads, on its standard input, JSON of the texts of configurations by name, and prints JSON of what
Snakemake says about a dry run with each.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from workspace import Workspace, jobs_by_rule


def plans(workspace: Workspace, texts: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Jobs by rule that the run would do with each of some configurations, given as YAML."""
    done = subprocess.run(
        [sys.executable, __file__, *workspace.command("--dry-run", "--quiet", "rules", "--nolock")[3:]],
        input=json.dumps(texts),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return {name: jobs_by_rule(text) for name, text in json.loads(done.stdout).items()}


def said(command: list[str], text: str) -> str:
    """What Snakemake prints when it is called with that text as its configuration."""
    Path(command[command.index("--configfile") + 1]).write_text(text)
    output = Path(command[command.index("--directory") + 1], "said.txt")
    child = os.fork()
    if not child:
        try:
            with output.open("w") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
                snakemake.cli.main(command)
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"{text}\n{output.read_text()}")
    return output.read_text()


if __name__ == "__main__":
    # What every fork would otherwise import and read again: more than half of its time.
    import pandas  # noqa: F401
    import smart_open  # noqa: F401
    import snakemake.cli
    import snakemake.report

    import configuration
    import plan  # noqa: F401
    from fingerprint import LIBRARY, SCRIPTS, fingerprint
    from toposcale import checkpoints  # noqa: F401
    from toposcale.io import lm_eval, loss_curves, notes  # noqa: F401
    from toposcale.monitor import folder  # noqa: F401

    configuration.schema()
    modules = [".".join(path.relative_to(LIBRARY).with_suffix("").parts) for path in LIBRARY.rglob("*.py")]
    for script in SCRIPTS.glob("*.py"):
        fingerprint(script.name, *modules)
    gc.freeze()  # the forks then share what is loaded
    json.dump({name: said(sys.argv[1:], text) for name, text in json.load(sys.stdin).items()}, sys.stdout)
