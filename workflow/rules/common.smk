# Paths, wildcards and the helper functions that rules share. What models and steps there are is in workflow/plan.py.
import fresh
import plan
import re
import sweep
import time
from glob import glob

from fingerprint import fingerprint
from toposcale import checkpoints
from toposcale.io import lm_eval, model_kinds
from toposcale.monitor.folder import Folder

START = time.time()
RUN = f"results/{config['run']}"
LOGS = f"{RUN}/logs"
with environment.mistakes_in_a_line():
    environment.refuse_read_only(Path(".snakemake"))
    environment.refuse_read_only(Path(RUN))
    MODELS = plan.models(config)
SWEPT = {run.name for run in sweep.runs(config["sweep"])}


def names_of(*kinds):
    """The models of some kinds."""
    return [name for name, model in MODELS.items() if model.kind in kinds]


TRAINED = names_of(model_kinds.GPT)
PUBLISHED = names_of(model_kinds.HUB)
MONITORED = names_of(model_kinds.MONITOR)
# Models whose losses stand in a file of the user's; of some there is nothing but this file.
CURVES = {name: model.loss_curve for name, model in MODELS.items() if model.loss_curve}
WITH_FEATURES = names_of(*(kind for kind in model_kinds.MODEL_KINDS.values() if kind.has_features))
WITH_WEIGHTS = names_of(*(kind for kind in model_kinds.MODEL_KINDS.values() if kind.has_weights))
# Plans that the user wrote into a file.
SCHEDULES = {name: model.settings.get("schedule") for name, model in MODELS.items()}
SCHEDULE_FILES = {name: schedule for name, schedule in SCHEDULES.items() if isinstance(schedule, str)}
# Models that can read a text.
RUNNABLE = [name for name in WITH_WEIGHTS if not MODELS[name].not_runnable]
# Checkpoints of which embeddings are computed, by model.
EMBEDDED = {
    name: model.every(config["embeddings"]["every"])
    for name, model in MODELS.items()
    if config["embeddings"]["enabled"] and name in RUNNABLE and model.settings.get("embeddings", True)
}
# Checkpoints of which the loss landscape is computed, by model.
LANDSCAPED = {
    name: model.every(config["landscape"]["every"])
    for name, model in MODELS.items()
    if config["landscape"]["enabled"] and name in RUNNABLE
}
# Checkpoints of which the embeddings are compared with those of the checkpoint before, by model.
DIVERGING = EMBEDDED if config["embeddings"]["divergence"] else {}
# The work of each producer, cut into jobs.
WORK = {
    source: plan.Producer(
        steps,
        whole=set(TRAINED) if config[section]["jobs"] == "model" else set(),
        elsewhere={name: MODELS[name].settings["path"] for name in MONITORED},
        run=RUN,
    )
    for source, section, steps in (
        ("training", "training", {name: MODELS[name].steps for name in TRAINED}),
        ("weights", "weights", {name: MODELS[name].steps for name in WITH_FEATURES}),
        ("embeddings", "embeddings", EMBEDDED),
        ("landscape", "landscape", LANDSCAPED),
        ("gradients", "landscape", LANDSCAPED if config["landscape"]["gradients"] else {}),
    )
}
# Sources of features and diagrams, and the models of each.
MODELS_OF = {source: list(work.steps) for source, work in WORK.items() if source != "training" and work.steps}


def one_of(names):
    """A wildcard constraint: one of some names, or nothing where there are none.

    Runs of one configuration of a sweep share a pattern: Snakemake compiles the whole for every output of a rule.
    """
    configurations = {re.escape(f"{MODELS[name].configuration}.seed") + r"\d+": None for name in names if name in SWEPT}
    return "|".join([*(re.escape(name) for name in names if name not in SWEPT), *configurations]) or "$."


wildcard_constraints:
    model=one_of(MODELS),
    span=rf"{plan.ALL}|step-\d{{{plan.STEP_DIGITS}}}",


environment.prepare(HOME)


onerror:
    # Snakemake ends with this line, and not with lines of its own below the cause.
    sys.exit(environment.cause(RUN, START))


def without(section, *keys):
    """A section of the configuration without keys that say how the work is done, not what comes of it."""
    return {key: value for key, value in section.items() if key not in keys}


# What measures checkpoints: the settings, and the script.
SETTINGS = {
    "weights": without(config["weights"], "jobs", "distances", "threads"),
    "embeddings": without(config["embeddings"], "enabled", "every", "jobs", "threads", "divergence"),
    "landscape": without(config["landscape"], "enabled", "every", "jobs", "path_resolution"),
}
MEASURED_BY = {"weights": "weight_features.py", "embeddings": "embeddings.py", "landscape": "loss_landscape.py"}


def code_of(*script_and_modules):
    """A params function: what tells the code of a rule from other code. Only the rules that are asked for are read."""
    return lambda wildcards: fingerprint(*script_and_modules)


def steps_of(source=None):
    """A params function: the checkpoints that a job on a source, or on that of the wildcard, does."""
    return lambda wildcards: WORK[source or wildcards.source].steps_of(wildcards.model, wildcards.get("span", plan.ALL))


def previous(pattern):
    """An input function: the file of the checkpoint before, and nothing for a model's first one."""

    def file_before(wildcards):
        step = MODELS[wildcards.model].previous_step(plan.step_of(wildcards.span))
        return [] if step is None else pattern.format(model=wildcards.model, span=plan.span_of(step))

    return file_before


def settings_of(*keys):
    """A params function: those keys of the entry of `models:` behind a model that it has."""
    return lambda wildcards: {
        key: entry[key] for entry in [MODELS[wildcards.model].settings] for key in keys if key in entry
    }


def training_settings(training):
    """What shapes a trained model. `jobs` and `device` say how the work is done, `sketch` what is noted on the way."""
    return without(training, "jobs", "device", "sketch")


def own_tokenizer(wildcards):
    """The user's folder with the tokenizer of a model, in a list, since Snakemake looks for wildcards in a text."""
    folder = MODELS[wildcards.model].settings.get("tokenizer")
    return [folder] if folder else []


def not_made_here(wildcards):
    """Whether the checkpoints of a model come from elsewhere, so that one that is damaged cannot be made again."""
    return wildcards.model not in TRAINED


def files_of_user(weights):
    """A param: the state of the files of a user's own checkpoints, of which `weights` is the input function.

    The time of a folder stays when a file in it is replaced. (Snakemake does not compare params that are made of `input`.)
    """
    return lambda wildcards: (
        checkpoints.state_of_files(weights(wildcards)) if MODELS[wildcards.model].kind == model_kinds.FOLDER else ""
    )


def corpus_files(key):
    """The user's files behind corpus.train or corpus.validation, in the order of the list, each glob sorted."""
    files = []
    for pattern in config["corpus"][key]:
        matched = sorted(path for path in glob(pattern, recursive=True) if Path(path).is_file())
        if not matched and Path(pattern).is_file():
            matched = [pattern]  # a name with brackets or stars in it
        if not matched:
            sys.exit(f"toposcale: config key corpus.{key}: no file matches {pattern!r}")
        files += matched
    if braced := [path for path in files if set(path) & set("{}")]:
        sys.exit(
            f"toposcale: config key corpus.{key}: {braced[0]!r} has a brace in its name, which Snakemake takes for a wildcard"
        )
    return files
