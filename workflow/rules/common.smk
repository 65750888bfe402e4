# What the rules share: the plan of the run, and what needs Snakemake itself. The functions are in workflow/*.py.
import time

import parts
import paths
import plan
from digests import Digests, code_of
from parts import ANALYSES, on_attempt
from paths import ROOT, files_of_models, jobs_of_models, page_files

START = time.time()
with environment.mistakes_in_a_line():
    environment.refuse_space(sys.executable)
    environment.refuse_read_only(Path(".snakemake"))
    environment.refuse_read_only(Path("results", config["run"]))
    PLAN = plan.Plan(config)
    if workflow.is_main_process:
        PLAN.check_folders()
    INPUTS = parts.Inputs(PLAN)
    if workflow.is_main_process:
        PLAN.inspections.save()
        environment.refuse_future(Path(PLAN.paths.run), INPUTS.contents)
PATHS = PLAN.paths
TABLES = parts.RunTables(INPUTS)
DIGESTS = Digests(rules, INPUTS.contents)


wildcard_constraints:
    model=PLAN.wildcard_regex(PLAN.models),
    checkpoints=rf"{paths.ALL}|step-\d{{{paths.STEP_DIGITS}}}",
    # Analyses write theirs as CSV, too; these are large, and made only where they are asked for.
    table="|".join([*TABLES.gathered, "vectors", "metrics", "models", "schedules"]),


environment.prepare(ROOT)


onstart:
    # What is locked now: profiles/slurm/run.sh unlocks this, and nothing else, when its job comes again.
    if "TOPOSCALE_LOCKED" in os.environ:
        shell("ls -il --full-time .snakemake/locks > $TOPOSCALE_LOCKED")


onerror:
    # Snakemake ends with this line, and not with lines of its own below the cause.
    sys.exit(environment.cause(PATHS.run, START))
