# toposcale: from models in training to the topology of their weights. The steps are in workflow/rules.
import sys
from pathlib import Path

from snakemake.utils import min_version

min_version("9.27")

HOME = Path(workflow.current_basedir.get_path_or_uri(secret_free=True))
sys.path[:0] = [str(HOME / "workflow"), str(HOME / "src")]

import config_reading
import environment

# A file that is named with --configfile takes the place of the default one; it is not merged into it.
DEFAULT = Path("config/config.yaml") if Path("config/config.yaml").exists() else HOME / "config/config.yaml"
if not workflow.overwrite_configfiles:
    with environment.mistakes_in_a_line():
        # Before Snakemake reads it, since Snakemake runs code that a file holds.
        config_reading.read(DEFAULT)

    configfile: str(DEFAULT)


with environment.mistakes_in_a_line():
    config = config_reading.resolve(config, workflow.configfiles, files_exist=True)


include: "workflow/rules/common.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/checkpoints.smk"
include: "workflow/rules/features.smk"
include: "workflow/rules/landscape.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"


# Tables of an earlier run that were made with something else, or are not readable; every rule is known by now.
STALE = DIGESTS.stale_files(TABLES.tables.values()) if workflow.is_main_process else []


rule all:
    default_target: True
    input:
        rules.tables.input,
        rules.figures.output,
        rules.report.output.page,
        rules.explorer.output,
        rules.measured.input,
        # What Snakemake has no record of is compared here; what it makes again anyhow passes.
        rules.compared.output if STALE else [],
    message:
        f"All of {PATHS.report}"
