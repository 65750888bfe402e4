# Paths, wildcards and the helper functions that rules share. What models and steps there are is in workflow/plan.py.
from plan import step_name
import last_line
import re
from glob import glob

from toposcale.io import lm_eval
from toposcale.monitor.folder import Folder

FACTS = (
    "d_model",
    "n_layers",
    "n_heads",
    "tokens_per_step",
    "n_parameters",
    "final_step",
    "schedule",
    "warmup_steps",
)
RUN = f"results/{config['run']}"
LOGS = f"{RUN}/logs"
with environment.mistakes_in_a_line():
    environment.refuse_read_only(Path(".snakemake"))
    environment.refuse_read_only(Path(RUN))
    MODELS = plan.models(config)
SWEPT = {run.name for run in sweep.runs(config["sweep"])}
TRAINED = [name for name, model in MODELS.items() if model.kind == "gpt"]
OF_TRAINED = set(TRAINED)
# Whose key `jobs` cuts the work on a source, where it is not the source's own.
PRODUCERS = {"gradients": "landscape"}
PUBLISHED = [name for name, model in MODELS.items() if model.kind == "hub"]
# What a live monitor measured: models with features and without weights.
MONITORED = [name for name, model in MODELS.items() if model.kind == "monitor"]
# Models whose losses stand in a file of the user's; of some there is nothing but this file.
CURVES = {name: model.loss_curve for name, model in MODELS.items() if model.loss_curve}
WITH_FEATURES = [
    name for name, model in MODELS.items() if model.kind not in ("table", "planned")
]
# Plans that the user wrote into a file.
SCHEDULE_FILES = {
    name: model.settings["schedule"]
    for name, model in MODELS.items()
    if isinstance(model.settings.get("schedule"), str)
}
WITH_WEIGHTS = [name for name in WITH_FEATURES if name not in MONITORED]
# Models that can read a text.
RUNNABLE = [name for name in WITH_WEIGHTS if not MODELS[name].not_runnable]
# Checkpoints of which embeddings are computed, by model.
EMBEDDED = {
    name: model.every(config["embeddings"]["every"])
    for name, model in MODELS.items()
    if config["embeddings"]["enabled"]
    and name in RUNNABLE
    and model.settings.get("embeddings", True)
}
# Checkpoints of which the loss landscape is computed, by model.
LANDSCAPED = {
    name: model.every(config["landscape"]["every"])
    for name, model in MODELS.items()
    if config["landscape"]["enabled"] and name in RUNNABLE
}
# Checkpoints of which the embeddings are compared with those of the checkpoint before, by model.
DIVERGING = EMBEDDED if config["embeddings"]["divergence"] else {}
# Sources that do not have every checkpoint.
CHOSEN = {
    "embeddings": EMBEDDED,
    "landscape": LANDSCAPED,
    "gradients": LANDSCAPED if config["landscape"]["gradients"] else {},
}


def one_of(names):
    """A wildcard constraint: one of some names, or nothing where there are none.

    All runs of a cell share a pattern: Snakemake compiles one for every file that a rule makes.
    """
    cells = {
        re.escape(f"{MODELS[name].cell}.seed") + r"\d+": None
        for name in names
        if name in SWEPT
    }
    return (
        "|".join([*(re.escape(name) for name in names if name not in SWEPT), *cells])
        or "$."
    )


wildcard_constraints:
    model=one_of(MODELS),
    step=rf"\d{{{plan.STEP_DIGITS}}}",


# What takes seconds or needs the network: done where Snakemake runs, not on a node of a cluster.
localrules:
    warnings_table,
    advice,
    tables,
    source,
    duplicates,
    turn,
    fetch,
    release,
    corpus,
    monitored,
    figures,
    landscape,
    resolved_configuration,
    report,
    explorer,
    measured,
    vectors_table,
    metrics_table,
    models_table,
    loss_table,
    training_log,


environment.prepare(HOME)
last_line.hear_interrupts()


onsuccess:
    last_line.of_success(RUN)


onerror:
    last_line.of_failure(RUN, log)


# The work of each producer, cut into jobs.
CUTS = {
    producer: plan.cuts(config[producer]["jobs"], chosen, TRAINED)
    for producer, chosen in {
        "training": {name: MODELS[name].steps for name in TRAINED},
        "weights": {name: MODELS[name].steps for name in WITH_WEIGHTS},
        "embeddings": EMBEDDED,
        "landscape": LANDSCAPED,
    }.items()
}


def without(section, *keys):
    """A section of the configuration without keys that say how the work is done, not what comes of it."""
    return {key: value for key, value in section.items() if key not in keys}


def steps(model, source="weights"):
    """The checkpoints of a model of which a source has features, as they stand in file names."""
    chosen = CHOSEN[source][model] if source in CHOSEN else MODELS[model].steps
    return [step_name(step) for step in chosen]


def steps_of(source="weights"):
    """A params function: the checkpoints of a model of which a source, or that of the wildcard, has features, as numbers."""
    return lambda wildcards: [
        int(step) for step in steps(wildcards.model, wildcards.get("source", source))
    ]


def made_together(model, source):
    """Whether one job makes the files of a source, or of the training, of all checkpoints of a model."""
    producer = PRODUCERS.get(source, source)
    return model in OF_TRAINED and config[producer]["jobs"] == "model"


def asked(paths):
    """Of files that one job makes, those to name as inputs: the last one, and any that has gone missing alone.

    Each file that is named costs Snakemake a millisecond; a sweep has a hundred thousand.
    """
    missing = [path for path in paths if not os.path.exists(path)]
    alone = missing if len(missing) < len(paths) else []
    return [*(path for path in alone if path != paths[-1]), paths[-1]]


def of_checkpoints(pattern, model, source="weights"):
    """The files of each checkpoint of a model: all of them, or, where one job makes them, those to name."""
    paths = [
        pattern.format(model=model, step=step, source=source)
        for step in steps(model, source)
    ]
    return asked(paths) if made_together(model, source) else paths


def of_every_checkpoint(pattern, models=MODELS, source="weights"):
    """`of_checkpoints` of some models: of a pattern with {model}, {step} and perhaps {source}."""
    return [path for model in models for path in of_checkpoints(pattern, model, source)]


def steps_by_folder(*kinds):
    """The steps of the files that one job makes, by their folder: `asked` names one of them.

    kinds: the arguments of `of_every_checkpoint`, in tuples.
    """
    found = {}
    for pattern, models, source in kinds:
        for model in models:
            if made_together(model, source):
                path = pattern.format(model=model, step="", source=source)
                found[str(Path(path).parent)] = [
                    int(step) for step in steps(model, source)
                ]
    return found


def of_every_model(pattern, models=MODELS, **wildcards):
    """The files of each model that a pattern with {model} and perhaps more stands for."""
    return expand(pattern, model=models, **wildcards)


def previous(pattern):
    """An input function: the file of the checkpoint before, and nothing for a model's first one."""

    def file_before(wildcards):
        step = MODELS[wildcards.model].previous_step(int(wildcards.step))
        if step is None:
            return []
        return pattern.format(model=wildcards.model, step=step_name(step))

    return file_before


def longest_chain_first(wildcards):
    """Priority of a job on a model: the work that waits behind it."""
    return MODELS[wildcards.model].remaining_cost(int(wildcards.get("step", 0)))


def settings_of(*keys):
    """A params function: those keys of the entry of `models:` behind a model that it has."""

    def settings(wildcards):
        entry = MODELS[wildcards.model].settings
        return {key: entry[key] for key in keys if key in entry}

    return settings


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

    def state(wildcards):
        kept = MODELS[wildcards.model].kind == "folder"
        return checkpoints.state_of_files(weights(wildcards)) if kept else ""

    return state


def corpus_files(key):
    """The user's files behind corpus.train or corpus.validation, in the order of the list, each glob sorted."""
    files = []
    for pattern in config["corpus"][key]:
        matched = sorted(
            path for path in glob(pattern, recursive=True) if Path(path).is_file()
        )
        if not matched and Path(pattern).is_file():
            matched = [pattern]  # a name with brackets or stars in it
        if not matched:
            sys.exit(f"toposcale: config key corpus.{key}: no file matches {pattern!r}")
        files += matched
    for path in files:
        if set(path) & set("{}"):
            sys.exit(
                f"toposcale: config key corpus.{key}: {path!r} has a brace in its name, which Snakemake takes for a wildcard"
            )
    return files
