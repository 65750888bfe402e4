# What rules read: input functions, and the files of models.
import hashlib
import json


def weights_of(model, step):
    """What holds the weights of a checkpoint: a file of ours, the user's file or folder, or a manifest of a download."""
    if MODELS[model].kind == model_kinds.FOLDER:
        return MODELS[model].settings["checkpoints"][step]
    pattern = MANIFEST if MODELS[model].kind == model_kinds.HUB else CHECKPOINT
    return pattern.format(model=model, span=plan.span_of(step))


def checkpoints_of(source):
    """An input function: the weights of the checkpoints that a job on a source does."""
    steps = steps_of(source)
    return lambda wildcards: [weights_of(wildcards.model, step) for step in steps(wildcards)]


def consumers(wildcards):
    """Everything that reads the weights of a checkpoint."""
    step = plan.step_of(wildcards.span)
    sources = [source for source in MODELS_OF if step in WORK[source].steps.get(wildcards.model, ())]
    checks = [check for check in RIPSER_CHECKS if check == RIPSER_CHECK.format(**wildcards)]
    return expand(FEATURES, source=sources, **wildcards) + checks


def file_of(pattern, checkpoint):
    """The file of a published checkpoint, {model}/{span}."""
    return Path(pattern.replace("{model}/{span}", checkpoint))


def purpose_of(model, step):
    """What a checkpoint is fetched for, as fingerprints: of where it is from, and of what measures it."""
    settings = MODELS[model].settings
    fetched = [settings["repo"], settings.get("revisions"), config["hub"]["duplicates"], fingerprint("fetch.py")]
    fetched.append(last_attempt(model, plan.span_of(step)).get("damaged", 0))
    sources = [source for source in SETTINGS if step in WORK[source].steps.get(model, ())]
    measured = [(source, SETTINGS[source], fingerprint(MEASURED_BY[source])) for source in sources]
    measured += [config["corpus"]] * (sources != ["weights"])
    texts = [json.dumps(facts, sort_keys=True, default=str).encode() for facts in (fetched, measured)]
    return [hashlib.sha256(text).hexdigest()[:16] for text in texts]


def is_due(checkpoint, purpose):
    """Whether a checkpoint must be fetched again: from another source or, if removed, to be measured in another way."""
    manifest, turn = file_of(MANIFEST, checkpoint), file_of(TURN, checkpoint)
    # `--touch` leaves an empty file.
    noted = (turn.read_text(encoding="utf-8").split() or purpose) if turn.exists() else []
    if config["hub"]["keep"] or manifest.exists():
        return noted[:1] != purpose[:1]
    return noted != purpose


def unfinished(checkpoint):
    """Whether a checkpoint whose turn has come was not fetched yet, or is still in the cache: it takes room from others."""
    manifest, size, turn = (file_of(pattern, checkpoint) for pattern in (MANIFEST, SIZE, TURN))
    return manifest.exists() or not size.exists() or size.stat().st_mtime < turn.stat().st_mtime


def room_for(wildcards):
    """What must have left the cache before a checkpoint is fetched, so that at most `hub.resident` are there at a time."""
    if config["hub"]["keep"]:
        return []
    resources = workflow.resource_settings
    bound = config["hub"]["resident"] or (resources.cores or resources.nodes or 1) + 1
    place = IN_TURN.index(wildcards.checkpoint) - bound
    return file_of(RELEASED, IN_TURN[place]) if place >= 0 else []


def last_attempt(model, span):
    """What the last attempt to fetch a checkpoint noted: its sizes, its commit, and how many downloads were damaged."""
    try:
        return json.loads(Path(SIZE.format(model=model, span=span)).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # `--touch` leaves an empty file
        return {}


def monitored_files(kind, models=MONITORED):
    """The files of one kind that live monitors have written so far."""
    folders = [Folder(Path(MODELS[model].settings["path"]), model) for model in models]
    return [str(path) for folder in folders for path in folder.files(kind).values()]


def files_so_far(model):
    """What tells how far a model has come, by kind: files that are there, or will be."""

    def of(source, pattern):
        return WORK[source].files(pattern, [model] if model in WORK[source].steps else [], source=source)

    monitored = [model] if model in MONITORED else []
    whole_log = [MODEL_LOG.format(model=model)] if model in WORK["training"].whole else []
    metrics = of("training", TRAINING_METRICS) + of("embeddings", EMBEDDING_METRICS)
    return {
        "training": whole_log + of("training", TRAINING_LOG) + monitored_files("training", monitored),
        "metrics": metrics + monitored_files("metrics/monitor", monitored),
        # The weights of a published model may be gone again; its size was noted when they were fetched.
        "weights": [] if model in PUBLISHED else [weights_of(model, step) for step in MODELS[model].steps],
        "sizes": of("weights", SIZE) if model in PUBLISHED else [],
    }


def harness_files():
    """The results of lm-evaluation-harness that are there now: new ones update the metrics."""
    where = config["metrics"]["harness"]
    files = list(map(str, lm_eval.result_files(where))) if where else []
    if where and not files:
        sys.exit(f"toposcale: config key metrics.harness: {where}: no JSON file of lm-evaluation-harness is there")
    return files


def twins(folder, names, first, second):
    """Outputs in two formats: {name} with the ending `first`, and {name}_{second} with the ending `second`."""
    return {name: f"{folder}/{name}.{first}" for name in names} | {
        f"{name}_{second}": f"{folder}/{name}.{second}" for name in names
    }


FRESH = ("fresh_features", "fresh_metrics", "fresh_models")


def fresh_files(run):
    """The tables of the run with fresh seeds, by name; none of them before all are there."""
    files = {name: f"results/{run}/tables/{name.removeprefix('fresh_')}.parquet" for name in FRESH}
    there = all(os.path.exists(file) for file in files.values())
    return files if there else dict.fromkeys(FRESH, [])


def page_files(page):
    """What a page is made of beside the library's code: a template, style sheets and scripts."""
    folder = HOME / "src" / "toposcale" / "pages"
    return [str(path) for name in ("base", page) for path in sorted(folder.glob(f"{name}.*")) if path.suffix != ".py"]
