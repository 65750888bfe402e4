# Paths, wildcards and the helper functions that rules share. What models and steps there are is in workflow/plan.py.
import environment

from plan import step_name
from toposcale.checkpoints import open_source
from toposcale.errors import UserError

RUN = f"results/{config['run']}"
LOGS = f"{RUN}/logs"
try:
    MODELS = plan.models(config)
except UserError as error:
    raise WorkflowError(f"\n{error}") from None
TRAINED = [name for name, model in MODELS.items() if model.kind == "gpt"]
PUBLISHED = [name for name, model in MODELS.items() if model.kind == "hub"]
# Checkpoints of which embeddings are computed, by model.
EMBEDDED = {
    name: model.every(config["embeddings"]["every"])
    for name, model in MODELS.items()
    if config["embeddings"]["enabled"]
}


wildcard_constraints:
    model="|".join(map(re.escape, MODELS)),
    step=rf"\d{{{plan.STEP_DIGITS}}}",


environment.prepare(HOME)


def steps(model, source="weights"):
    """The checkpoints of a model of which a source has features, as they stand in file names."""
    chosen = EMBEDDED[model] if source == "embeddings" else MODELS[model].steps
    return [step_name(step) for step in chosen]


def of_every_checkpoint(pattern, models=MODELS, source="weights"):
    """The files of each (model, checkpoint) that a pattern with {model}, {step} and perhaps {source} stands for."""
    return [
        path
        for model in models
        for path in expand(
            pattern, model=model, step=steps(model, source), source=source
        )
    ]


def of_every_model(pattern, models=MODELS, **wildcards):
    """The files of each model that a pattern with {model} and perhaps more stands for."""
    return expand(pattern, model=models, **wildcards)


def previous(pattern):
    """An input function: the file of the checkpoint before, and nothing for a model's first one."""

    def file_before(wildcards):
        step = MODELS[wildcards.model].previous_step(int(wildcards.step))
        return (
            []
            if step is None
            else [pattern.format(model=wildcards.model, step=step_name(step))]
        )

    return file_before


def longest_chain_first(wildcards):
    """Priority of a job on a model: the work that waits behind it."""
    return MODELS[wildcards.model].remaining_cost(int(wildcards.get("step", 0)))


def settings_of(wildcards):
    """The entry of `models:` behind a model."""
    return MODELS[wildcards.model].settings


def seed_of(wildcards):
    """The seed of a model."""
    return MODELS[wildcards.model].seed


def corpus_files(key):
    """The user's files behind corpus.train or corpus.validation, in the order of the list, each glob sorted."""
    files = []
    for pattern in config["corpus"][key]:
        matched = sorted(
            path for path in glob(pattern, recursive=True) if Path(path).is_file()
        )
        if not matched:
            raise WorkflowError(f"config key corpus.{key}: no file matches {pattern!r}")
        files += matched
    return files


def trained(pattern):
    """What one training job makes: a file, or a file for every checkpoint of its model."""
    if ONE_JOB_A_CHECKPOINT:
        return pattern
    every_step = map(step_name, plan.checkpoint_steps(config["training"]))
    return expand(pattern, step=every_step, allow_missing=True)


def training_log_parts(wildcards):
    """The stretches of a model's training log."""
    return expand(TRAINING_LOG, model=wildcards.model, step=steps(wildcards.model))


def weights_of(model, step):
    """What holds the weights of a checkpoint: a file of ours, the user's file or folder, or a manifest of a download."""
    if MODELS[model].kind == "gpt":
        return CHECKPOINT.format(model=model, step=step)
    if MODELS[model].kind == "hub":
        return MANIFEST.format(model=model, step=step)
    try:
        return str(
            open_source(MODELS[model].kind, MODELS[model].settings).fetch(int(step))
        )
    except UserError as error:
        raise WorkflowError(f"\n{error}") from None


def checkpoint(wildcards):
    """`weights_of` as an input function."""
    return weights_of(wildcards.model, wildcards.step)


def consumers(wildcards):
    """Everything that reads the weights of a checkpoint."""
    sources = ["weights"]
    if int(wildcards.step) in EMBEDDED.get(wildcards.model, ()):
        sources.append("embeddings")
    return [
        *expand(FEATURES, source=sources, model=wildcards.model, step=wildcards.step),
        rules.models_table.output[0],  # it asks the last checkpoints for their size
    ]


def diagrams_of_model(wildcards):
    """The diagrams of a model at every checkpoint that a source has."""
    return expand(DIAGRAMS, step=steps(wildcards.model, wildcards.source), **wildcards)


def steps_of_source(wildcards):
    """The checkpoints behind `diagrams_of_model`, as numbers."""
    return [int(step) for step in steps(wildcards.model, wildcards.source)]


def last_checkpoints(wildcards):
    """The last checkpoint of each model: its size is the model's."""
    return [weights_of(model, steps(model)[-1]) for model in MODELS]


# Tables of a row a layer are megabytes of CSV; `snakemake --report` is for the others.
TOO_LONG_FOR_THE_REPORT = {
    "correlations",
    "partial_correlations",
    "pooled_correlations",
    "verdicts",
    "transitions",
    "change_points",
    "early_stopping",
}


def analysis(*tables, category="Tables"):
    """The files of an analysis: each of its tables as Parquet, and as CSV with a place in the report if it is short."""
    files = {table: f"{TABLES}/{table}.parquet" for table in tables}
    for table in tables:
        path = f"{TABLES}/{table}.csv"
        files[f"{table}_csv"] = (
            path
            if table in TOO_LONG_FOR_THE_REPORT
            else report(
                path,
                category=category,
                caption=f"../report/{table}.rst",
                labels={"table": table.replace("_", " ")},
            )
        )
    return files


def drawn_together(subject):
    """The figures of a subject, by name."""
    return {
        name: figure for name, figure in DRAWN.items() if figure.category == subject
    }


def figure_files(subject):
    """The files of a subject's figures: vectors with a place in the report, and PNG beside them."""
    return {
        name: report(
            FIGURE.format(figure=name) + ".svg",
            category=subject,
            caption=f"../report/figures/{name}.rst",
            labels={"figure": name.replace("_", " ")},
        )
        for name in drawn_together(subject)
    } | {
        f"{name}_png": FIGURE.format(figure=name) + ".png"
        for name in drawn_together(subject)
    }


def page_files(page):
    """What a page is made of beside the library's code: a template, style sheets and scripts."""
    folder = HOME / "src" / "toposcale" / "pages"
    return [
        str(path)
        for name in ("base", page)
        for path in sorted(folder.glob(f"{name}.*"))
        if path.suffix != ".py"
    ]
