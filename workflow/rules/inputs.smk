# What rules read: input functions, and the files, sizes and facts of models; and the memory and time that jobs ask for.
import errno
import functools

from toposcale import checkpoints


def training_log_parts(wildcards):
    """The stretches of a model's training log."""
    if wildcards.model in MONITORED:
        return monitored_files("training", [wildcards.model])
    return of_checkpoints(TRAINING_LOG, wildcards.model, "training")


def weights_of(model, step):
    """What holds the weights of a checkpoint: a file of ours, the user's file or folder, or a manifest of a download."""
    if MODELS[model].kind == "gpt":
        return CHECKPOINT.format(model=model, step=step)
    if MODELS[model].kind == "hub":
        return MANIFEST.format(model=model, step=step)
    return MODELS[model].settings["checkpoints"][int(step)]


def checkpoints_of(cut):
    """An input function: the weights of the checkpoints that a job of a cut does."""
    return lambda wildcards: checkpoint_files(wildcards.model, cut.steps_of(wildcards))


def checkpoint_files(model, steps):
    """The weights of some checkpoints of a model; where one job makes them all, those to name."""
    paths = [weights_of(model, step_name(step)) for step in steps]
    together = len(paths) > 1 and made_together(model, "training")
    return asked(paths) if together else paths


def consumers(wildcards):
    """Everything that reads the weights of a checkpoint."""
    sources = ["weights"] + [
        source
        for source, chosen in CHOSEN.items()
        if int(wildcards.step) in chosen.get(wildcards.model, ())
    ]
    return expand(FEATURES, source=sources, model=wildcards.model, step=wildcards.step)


def resident_before(wildcards):
    """What must have left the cache before a checkpoint is fetched."""
    if config["hub"]["keep"]:
        return []
    resources = workflow.resource_settings
    bound = config["hub"]["resident"] or (resources.cores or resources.nodes or 1) + 1
    chain = of_every_checkpoint(RELEASED, PUBLISHED)
    place = chain.index(RELEASED.format(**wildcards)) - bound
    return chain[place] if place >= 0 else []


def weight_diagrams(wildcards):
    """The diagrams of all weights. (Of a list, Snakemake would compute a hash for each of its files.)"""
    return of_every_checkpoint(DIAGRAMS, WITH_FEATURES, source="weights")


@functools.cache
def sizes_in_folder(model):
    """Weights, and entries of the largest matrix, of a folder's checkpoints, which are of one shape."""
    return checkpoints.stored_sizes(weights_of(model, steps(model)[-1]))


def sizes_of(wildcards):
    """Weights, and entries of the largest matrix, of a checkpoint from elsewhere; zeros where they are tiny or not usable.

    FileNotFoundError: it was not fetched yet. Snakemake asks again when it was.
    """
    model = wildcards.model
    if MODELS[model].kind == "folder":
        return sizes_in_folder(model)
    if MODELS[model].kind != "hub":
        return checkpoints.Sizes(0, 0, 0)
    manifest, size = (
        path.format(model=model, step=wildcards.step) for path in (MANIFEST, SIZE)
    )
    if not os.path.exists(size):
        raise FileNotFoundError(errno.ENOENT, "not fetched yet", manifest)
    try:
        known = json.loads(Path(size).read_text(encoding="utf-8"))
    except ValueError:  # left empty by something else, `--touch` for one
        known = {}
    return checkpoints.Sizes(
        *(known.get(name) or 0 for name in checkpoints.Sizes._fields)
    )


def on_attempt(amount):
    """A resource: an amount at the first attempt, as much again at every further one (`retries` of a profile)."""

    def resource(wildcards, attempt):
        return amount * attempt

    return resource


def by_size(base, per_weight=0.0, per_matrix=0.0):
    """A resource: an amount for a tiny checkpoint, and more for each million weights or entries of the largest matrix."""

    def resource(wildcards, input, attempt):
        sizes = sizes_of(wildcards)
        more = per_weight * sizes.n_parameters + per_matrix * sizes.largest_matrix
        return int(base + more / 1e6) * attempt

    return resource


def last_checkpoints(wildcards):
    """The last checkpoint of each model that has its weights here: its size is the model's."""
    return [
        weights_of(model, steps(model)[-1])
        for model in WITH_WEIGHTS
        if model not in PUBLISHED
    ]


def monitored_folder(model):
    """Where a live monitor writes the rows of a model."""
    return Folder(Path(MODELS[model].settings["path"]), model)


def monitored_snapshot(wildcards):
    """An input function: what a live monitor wrote of one snapshot."""
    folder, step = monitored_folder(wildcards.model), int(wildcards.step)
    return {
        kind: str(folder.file(f"{kind}/weights", step))
        for kind in ("features", "diagrams")
    }


def monitored_files(kind, models=MONITORED):
    """The files of one kind that live monitors have written so far."""
    return [
        str(path)
        for model in models
        for path in monitored_folder(model).files(kind).values()
    ]


def facts_of(name):
    """What the configuration, the plan and a monitor tell of a model: a row of the models table, with None for unknown."""
    model = MODELS[name]
    known = {key: model.settings.get(key) for key in FACTS}
    if model.kind == "gpt":
        training = model.training
        known["tokens_per_step"] = training["batch_size"] * training["context"]
        known["final_step"] = model.steps[-1]
        known |= {key: training[key] for key in sweep.SIZES}
        schedule = model.settings["schedule"]
        known["shape"] = schedule if isinstance(schedule, str) else schedule["shape"]
    # A plan tells its own warm-up, where there is one.
    plan_of_rates = model.settings.get("schedule")
    if isinstance(plan_of_rates, dict) and "warmup_steps" in plan_of_rates:
        known["warmup_steps"] = plan_of_rates["warmup_steps"]
    own = {
        "family": model.family,
        "entry": model.entry,
        "cell": model.cell,
        "seed": model.seed,
    }
    return {**own, **known, "last_checkpoint": max(model.steps, default=None)}


def harness_files():
    """The results of lm-evaluation-harness that are there now: new ones make the metrics anew."""
    where = config["metrics"]["harness"]
    files = list(map(str, lm_eval.result_files(where))) if where else []
    if where and not files:
        sys.exit(
            f"toposcale: config key metrics.harness: {where}: no JSON file of lm-evaluation-harness is there"
        )
    return files


def table_files(*tables):
    """The files of an analysis: each of its tables as Parquet, and as CSV."""
    return {table: f"{TABLES}/{table}.parquet" for table in tables} | {
        f"{table}_csv": f"{TABLES}/{table}.csv" for table in tables
    }


def drawn_together(subject):
    """The figures of a subject, by name."""
    return {name: figure for name, figure in DRAWN.items() if figure.subject == subject}


def figure_files(subject):
    """The files of a subject's figures: vectors, and PNG beside them."""
    names = drawn_together(subject)
    return {name: FIGURE.format(figure=name) + ".svg" for name in names} | {
        f"{name}_png": FIGURE.format(figure=name) + ".png" for name in names
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
