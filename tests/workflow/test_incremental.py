"""For each key of the configuration, which rules rerun when it changes: a new key of the schema needs its line here.

The table names the rules at which a change enters; everything that reads their outputs follows, by the workflow's own
graph. The run that is planned on is a finished one by all that Snakemake looks at (files, their times, and the records
of code, parameters and inputs), made with empty files and `--touch`, since planning reads no content.
"""

import numpy as np
import pytest
import yaml

import config_reading
import loaded
import sweep
from config_reference import keys_of
from toposcale.io import tensor_files
from workspace import cone, jobs_by_rule, new_workspace

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("incremental")]

# Rules through which a model's weights enter everything else.
GPT, PUBLISHED = {"train"}, {"fetch"}
METRICS = {"metrics_table"}
LANDSCAPE = {"loss_landscape"}
WITH_PATH = {"loss_landscape", "training_path"}

# key: (another value, the rules at which the change enters). `models.{name}.` stands for the model that has the key.
CHANGES = {
    "corpus.source": ("python-docs", {"corpus", "comparison"}),
    "corpus.train": (["validation.txt"], {"corpus", "comparison"}),
    "corpus.validation": (["train.txt"], {"corpus", "comparison"}),
    "corpus.tokenizer": ("bpe", {"corpus", "comparison"}),
    "corpus.vocab_size": (64, {"corpus"}),
    "training.batch_size": (3, {"train", "models_table", "comparison"}),
    "training.context": (9, {"train", "corpus", "models_table", "comparison"}),
    "training.learning_rate": (0.001, {"train", "models_table", "comparison"}),
    "training.warmup_steps": (0, {"train", "comparison"}),
    "training.weight_decay": (0.1, {"train", "models_table", "comparison"}),
    "training.gradient_clip": (2.0, {"train", "comparison"}),
    "training.validation_sequences": (3, {"train", "comparison"}),
    "training.device": ("cpu", {"train"}),
    "weights.layers.include": (["*mlp*"], {"weight_features"}),
    "weights.layers.exclude": (["*mlp*"], {"weight_features"}),
    "weights.features": (["norms"], {"weight_features"}),
    "weights.max_points": (7, {"weight_features"}),
    "weights.max_dimension": (0, {"weight_features"}),
    "weights.null_draws": (2, {"weight_features"}),
    "weights.surrogate_draws": (2, {"weight_features"}),
    "weights.whole_layers": (True, {"weight_features"}),
    "weights.threads": (2, set()),
    "weights.seed": (7, {"weight_features"}),
    "hub.cache": ("elsewhere", set()),
    "hub.keep": (False, set()),
    "embeddings.texts": (5, {"embeddings"}),
    "embeddings.max_tokens": (7, {"embeddings"}),
    "embeddings.layers": ("all", {"embeddings"}),
    "embeddings.components": (3, {"embeddings"}),
    "embeddings.repeats": (3, {"embeddings", "diagram_distances"}),
    "embeddings.threads": (2, set()),
    "embeddings.dtype": ("bfloat16", {"embeddings"}),
    "embeddings.device": ("cpu", {"embeddings"}),
    "embeddings.divergence": (False, {"diagram_distances"}),
    "weights.distances": (False, {"diagram_distances"}),
    "landscape.gradients": (False, LANDSCAPE),
    "trajectory.enabled": (False, {"train"}),
    "training.sketch.every": (2, {"train"}),
    "landscape.dimensions": (3, LANDSCAPE),
    "landscape.resolution": (7, WITH_PATH),
    "landscape.path_resolution": (7, {"training_path"}),
    "landscape.planes": ({"random": [2.0], "negative": [0.3, 1.0]}, LANDSCAPE),
    "landscape.threshold": (0.1, LANDSCAPE),
    "landscape.ball_points": (64, LANDSCAPE),
    "landscape.subspaces": ([2], LANDSCAPE),
    "landscape.subspace_extent": (2.0, LANDSCAPE),
    "landscape.subspace_starts": (3, LANDSCAPE),
    "landscape.trace_accuracy": (0.2, LANDSCAPE),
    "landscape.graphs": (["grid4"], {"loss_landscape"}),
    "landscape.batch_size": (3, WITH_PATH),
    "landscape.max_tokens": (7, WITH_PATH),
    "landscape.repeats": (1, WITH_PATH),
    "landscape.eigenvalues": (3, LANDSCAPE),
    "landscape.trace_probes": (3, LANDSCAPE),
    "landscape.density_runs": (1, LANDSCAPE),
    "landscape.density_steps": (7, LANDSCAPE),
    "landscape.device": ("cpu", WITH_PATH),
    "trajectory.window": (30, {"trajectory"}),
    "metrics.harness": ("scores", METRICS),
    "metrics.tasks": (["arc_*"], METRICS | {"figures"}),
    "metrics.tables": (["scores.csv"], METRICS | {"user_metrics"}),
    "statistics.resamples": (20, {"correlations", "forecasts", "decisions"}),
    "statistics.seed": (7, {"correlations", "forecasts", "decisions"}),
    "forecasts.fractions": ([0.4], {"forecasts", "scores", "decisions"}),
    "forecasts.metrics": (["other.acc"], {"scores"}),
    "forecasts.loss": ("task.ppl", {"scores"}),
    "decision.remaining": (1e9, {"decisions"}),
    "decision.multiples": ([8], {"decisions"}),
    # Only the advice reads it.
    "decision.target_loss": (2.0, set()),
    "reproduces": (["paper", "landscape_review"], {"claims", "comparison"}),
    "models.{name}.d_model": (8, {"train", "models_table"}),
    "models.{name}.n_layers": (2, {"train", "models_table"}),
    "models.{name}.n_heads": (2, {"train", "models_table"}),
    "training.data_fraction": (0.5, {"train", "models_table", "comparison"}),
    **{
        f"models.{{name}}.training.{key}": (value, {"train", "models_table"})
        for key, value in {
            "learning_rate": 0.001,
            "weight_decay": 0.1,
            "batch_size": 3,
            "warmup_steps": 0,
            "data_fraction": 0.5,
        }.items()
    },
    "models.{name}.schedule.shape": ("linear", {"train", "models_table"}),
    "models.{name}.schedule.peak": (0.001, {"train", "models_table"}),
    "models.{name}.schedule.warmup_steps": (0, {"train", "models_table"}),
    "models.{name}.schedule.final": (0.0001, {"train", "models_table"}),
    "models.{name}.warmup_steps": (1, {"models_table"}),
    "training.schedule.shape": ("linear", {"train", "models_table", "comparison"}),
    "training.schedule.peak": (0.001, {"train", "models_table", "comparison"}),
    "training.schedule.warmup_steps": (0, {"train", "models_table", "comparison"}),
    "training.schedule.final": (0.0001, {"train", "models_table", "comparison"}),
    "models.{name}.repo": ("x/y", {"fetch", "models_table"}),
    "models.{name}.revisions": ("rev{step}", {"fetch"}),
    "models.{name}.tokens_per_step": (7, {"models_table"}),
    "models.{name}.tokenizer": ("tokenizer", {"embeddings", "loss_landscape"}),
    "models.{name}.family": ("other", {"models_table"}),
    "models.{name}.configuration": ("one", {"models_table"}),
    "models.{name}.seed": (7, {"models_table"}),
    "models.{name}.n_parameters": (7, {"models_table"}),
    "models.{name}.unique_tokens": (7, {"models_table"}),
    "models.{name}.optimizer": ("adamw", {"models_table"}),
    "models.{name}.weight_decay": (0.1, {"models_table"}),
    "models.{name}.weight_average": ("ema", {"models_table"}),
    "models.{name}.final_step": (7, {"models_table"}),
    "figures.formats": (["svg", "png", "pdf"], {"figures"}),
}

# Rules that a run does not have any more after a change.
GONE = {"trajectory.enabled": {"trajectory"}}

# Keys that say which models, checkpoints and files there are: the tests below say what each of them does.
IDENTITY = {
    "run": "another folder: everything is made again",
    "seeds": "each further seed is a model more",
    "models": "models that are added are made, and what is gathered is gathered again",
    "models.{name}.kind": "another model",
    "models.{name}.path": "other files: other inputs",
    "models.{name}.losses": "other files: other inputs",
    "models.{name}.losses_pattern": "other rows of the same file",
    "models.{name}.embeddings": "embeddings of the model are made, or leave the tables",
    "models.{name}.pattern": "other files: other inputs",
    "models.{name}.steps": "steps that are added are made, and what is gathered is gathered again",
    **dict.fromkeys(
        (
            *("models.{name}.schedule", "models.{name}.schedule.steps", "training.schedule", "training.schedule.steps"),
            *(
                f"{where}.schedule.{key}"
                for where in ("models.{name}", "training")
                for key in ("decay_start", "decay_shape")
            ),
        ),
        "another schedule, as its shape is",
    ),
    "training.steps": "the length of the learning-rate schedule: every step of it changes",
    "training.checkpoint_every": "other checkpoints, and segments of training between them",
    **dict.fromkeys(
        ("training.jobs", "weights.jobs", "embeddings.jobs", "landscape.jobs"), "other jobs, with other inputs"
    ),
    "embeddings.enabled": "embeddings are made, or leave the tables",
    "embeddings.every": "checkpoints that are added are embedded",
    "landscape.enabled": "landscapes are made, or leave the tables",
    "landscape.every": "checkpoints that are added have their landscape computed",
    **{f"sweep.{key}": "runs that are added are made" for key in ("models", "seeds", "first_seed", *sweep.NAMES)},
    "models.{name}.training.steps": "the length of the learning-rate schedule, and other checkpoints",
    "models.{name}.training.checkpoint_every": "other checkpoints",
}


def leaves():
    """Every key of the schema that holds a value, `models` for a whole new entry."""
    keys = {path: part for path, part, _ in keys_of(config_reading.schema())}
    return [path for path, part in keys.items() if "properties" not in part]


def test_every_key_of_the_schema_has_a_line_in_one_of_the_tables():
    assert sorted([*CHANGES, *IDENTITY]) == sorted(leaves())


# Planning.


def starting_configuration():
    gpt = {"d_model": 4, "n_layers": 1, "n_heads": 1}
    return {
        "run": "small",
        "reproduces": ["paper"],
        "models": {
            "one": {**gpt, "family": "toys"},
            "two": gpt,
            "published": {
                **{"kind": "hub", "repo": "a/b", "revisions": "step{step}", "steps": [0, 4]},
                **{"tokens_per_step": 16, "family": "published"},
            },
            "found": {
                **{"kind": "folder", "path": "found", "pattern": "step{step}.safetensors"},
                **{"steps": [0, 4], "tokens_per_step": 16},
            },
            "curve": {"kind": "table", "path": "curve.csv", "n_parameters": 9, "tokens_per_step": 16},
        },
        "corpus": {"source": "files", "train": ["train.txt"], "validation": ["validation.txt"]},
        "training": {
            **{"steps": 4, "checkpoint_every": 4, "batch_size": 2, "context": 8, "warmup_steps": 1},
            **{"learning_rate": 0.003, "validation_sequences": 2},
        },
        "embeddings": {"repeats": 2},
        "landscape": {"enabled": True},
        "forecasts": {"metrics": ["task.acc"]},
        "statistics": {"resamples": 10},
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder in which everything is there and recorded as made by `starting_configuration`."""
    workspace = new_workspace(tmp_path_factory.mktemp("incremental") / "work")
    workspace.config = starting_configuration()
    (workspace.path / "scores.csv").write_text("model,step,metric,value\n")
    (workspace.path / "tokenizer").mkdir()
    (workspace.path / "tokenizer" / "tokenizer.json").write_text("{}")
    (workspace.path / "curve.csv").write_text("step,loss\n1,2\n")
    (workspace.path / "scores").mkdir()
    (workspace.path / "scores" / "results.json").write_text("{}")
    for step in (0, 4, 8):
        folder = workspace.path / "found"
        folder.mkdir(exist_ok=True)
        tensor_files.write(folder / f"step{step}.safetensors", {"w": np.eye(3, dtype=np.float32)}, {"d_model": "3"})
    workspace.pretend_made()
    return workspace


def changed(key, value):
    """`starting_configuration` with another value of a key; of `models.{name}.`, in the first model that may hold it."""
    config = starting_configuration()
    *sections, last = key.split(".")
    part = config
    for section in sections:
        if section == "{name}":
            names = {"repo": "published", "revisions": "published", "tokens_per_step": "published"}
            names |= {"tokenizer": "published", "n_parameters": "curve", "final_step": "curve"}
            names |= dict.fromkeys(
                ("configuration", "seed", "unique_tokens", "optimizer", "weight_average"), "published"
            )
            names |= {"weight_decay": "published"} if len(sections) == 2 else {}
            names |= {"warmup_steps": "curve"} if len(sections) == 2 else {}
            part = part[names.get(last, "one")]
        else:
            part = part.setdefault(section, {})
    assert part.get(last) != value
    part[last] = value
    if key == "corpus.source":
        del part["train"], part["validation"]
    return config


def with_models(**models):
    config = starting_configuration()
    config["models"] |= models
    return config


def more_steps(name, steps):
    config = starting_configuration()
    config["models"][name]["steps"] = steps
    return config


def more(**sections):
    config = starting_configuration()
    for section, keys in sections.items():
        config[section] = keys if isinstance(keys, list) else {**config.get(section, {}), **keys}
    return config


OTHERS = {
    "nothing": starting_configuration(),
    "a model": with_models(three={"d_model": 4, "n_layers": 1, "n_heads": 1}),
    "a seed": more(seeds=[42, 43]),
    "a published step": more_steps("published", [0, 4, 8]),
    "a found step": more_steps("found", [0, 4, 8]),
    "a longer training": more(training={"steps": 8}),
    "more checkpoints": more(training={"checkpoint_every": 2}),
    "one job a model": more(training={"jobs": "model"}),
    # There are two checkpoints, and the first and the last are always embedded.
    "embedded as before": more(embeddings={"every": 2}),
    "no embeddings": more(embeddings={"enabled": False}),
    "another run": {**starting_configuration(), "run": "other"},
}


@pytest.fixture(scope="module")
def planned(made):
    """Jobs by rule for every change of the tables, and of the run without a change under "nothing"."""
    texts = {key: yaml.safe_dump(changed(key, value)) for key, (value, _) in CHANGES.items()}
    texts |= {name: yaml.safe_dump(config) for name, config in OTHERS.items()}
    texts["a comment"] = "# a comment\n" + yaml.safe_dump(starting_configuration()) + "\n\n"
    command = made.command("--dry-run", "--quiet", "rules", "--nolock")
    plans = {}
    for name, text in texts.items():
        (made.path / "config.yaml").write_text(text)
        done = loaded.snakemake(command, made.home)
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        plans[name] = jobs_by_rule(done.stdout)
    return plans


@pytest.fixture(scope="module")
def followers(made):
    """For each rule, the rules that read what it makes."""
    made.config = starting_configuration()
    return made.followers()


def test_nothing_is_planned_where_nothing_changed(planned):
    assert planned["nothing"] == {}
    assert planned["a comment"] == {}


@pytest.mark.parametrize("key", CHANGES)
def test_a_changed_key_reruns_what_depends_on_it_and_nothing_else(planned, followers, key):
    entering = set(CHANGES[key][1]) | {"resolved_configuration"}  # which leads only to the report
    left_out = {"all"} | GONE.get(key, set())
    reached = cone(entering, followers)
    assert set(planned[key]) - {"all"} == reached - left_out


def jobs(counts):
    """How many jobs of a model or a checkpoint are planned, by rule; what is gathered stands for itself."""
    own = ("train", "training_log", "fetch", "weight_features", "embeddings", "diagram_distances", "corpus")
    return {rule: counts[rule] for rule in own if rule in counts}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("a model", {"train": 2, "training_log": 1, "weight_features": 2, "embeddings": 2, "diagram_distances": 1}),
        ("a seed", {"train": 4, "training_log": 2, "weight_features": 4, "embeddings": 4, "diagram_distances": 2}),
        ("a published step", {"fetch": 1, "weight_features": 1, "embeddings": 1, "diagram_distances": 1}),
        ("a found step", {"weight_features": 1, "embeddings": 1, "diagram_distances": 1}),
        # The schedule of the learning rate is another one from the first step on.
        (
            "a longer training",
            {"train": 6, "training_log": 2, "weight_features": 6, "embeddings": 6, "diagram_distances": 2},
        ),
        ("one job a model", {"train": 2, "weight_features": 4, "embeddings": 4, "diagram_distances": 2}),
        ("embedded as before", {}),
        # The distances of a model are one job.
        ("no embeddings", {"diagram_distances": 4}),
    ],
)
def test_what_is_added_is_made_alone_and_gathered(planned, change, expected):
    assert jobs(planned[change]) == expected
    gathered = {"features_table", "correlations"} & set(planned[change])
    assert gathered == (set() if change == "embedded as before" else {"features_table", "correlations"})


def test_another_run_makes_everything(planned, followers):
    assert set(planned["another run"]) == set(followers)


def test_checkpoints_more_often_retrain_the_segments_between(planned):
    assert planned["more checkpoints"]["train"] == 2 * 3
