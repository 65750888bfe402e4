# toposcale: from models in training to the topology of their weights, and what it says about the loss.
# The steps are in workflow/rules, the keys of the configuration in config/README.md.
import sys
from pathlib import Path

from snakemake.utils import min_version

min_version("9.27")

HOME = Path(workflow.current_basedir.get_path_or_uri(secret_free=True))
sys.path[:0] = [str(HOME / "workflow"), str(HOME / "src")]

import configuration
import environment
import recorded
from toposcale.io.errors import UserError

# A file that is named with --configfile takes the place of the default one; it is not merged into it.
DEFAULT = (
    Path("config/config.yaml")
    if Path("config/config.yaml").exists()
    else HOME / "config/config.yaml"
)
if not workflow.overwrite_configfiles:

    configfile: str(DEFAULT)


try:
    environment.refuse_space(sys.executable)
    config = configuration.resolve(configuration.rebase(config, workflow.configfiles))
    configuration.check_files(config)
    recorded.check(config, Path("results", config["run"]))
except (UserError, configuration.ConfigurationError) as error:
    sys.exit(f"toposcale: {error}")


include: "workflow/rules/common.smk"
include: "workflow/rules/inputs.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/checkpoints.smk"
include: "workflow/rules/features.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/landscape.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        rules.tables.input,
        rules.figures.input,
        rules.report.output.page,
        rules.explorer.output,
    message:
        f"{RUN}: report, explorer, figures and tables"
