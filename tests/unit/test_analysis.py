"""The other analyses on runs with planted answers: scaling, transitions, and a run without a loss."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import config_reading
from paths import ROOT
from planted_features import SIZES, STEPS, N, four_models, one, rows
from toposcale import analysis, reproduction, statistics
from toposcale.analysis.aligned import warmups_of
from toposcale.analysis.early_stopping import early_stopping_summary, early_stopping_tables
from toposcale.analysis.scaling import scaling_tables
from toposcale.analysis.transitions import transition_tables
from toposcale.features.registry import group_of
from toposcale.io import schemas
from toposcale.io import tables as arrow_tables


@pytest.fixture(scope="module")
def run():
    return four_models()


@pytest.mark.parametrize(
    ("feature", "group"),
    [
        ("h0_total_scaled", "topology"),
        ("neural_persistence_z_permuted", "topology"),
        ("h1_wasserstein_2", "topology"),
        ("n_minima", "topology"),
        ("effective_rank", "spectrum"),
        ("frobenius_norm", "norm"),
        ("gradient_norm", "norm"),
        ("nonfinite_count_random_1", "other"),
    ],
)
def test_features_belong_to_their_group(feature, group):
    assert group_of(feature) == group


@pytest.mark.parametrize("name", ["perplexity", "a_feature_of_nobody_scaled"])
def test_what_is_no_feature_has_no_group(name):
    with pytest.raises(LookupError, match="registered"):
        group_of(name)


def test_scaling_recovers_the_planted_law(run):
    features, metrics, models = run
    final = pd.DataFrame(
        {"model": list(SIZES), "step": 5000, "metric": "exact", "value": [1 + 20 * n**-0.3 for n in SIZES.values()]}
    )
    table = scaling_tables(features, pd.concat([metrics, final]), models)["scaling"]
    offset = one(table, feature="exact", law="power_law_with_offset")
    assert (offset.exponent, offset.offset, offset.spearman) == pytest.approx((-0.3, 1.0, -1.0), rel=1e-3)
    plain = one(table, feature="validation_loss", law="power_law")
    assert plain.exponent_low < plain.exponent < plain.exponent_high


def test_power_laws_are_of_one_family(run):
    features, metrics, models = run
    made = scaling_tables(features, metrics, models)["scaling"]
    stranger = models.iloc[[0]].assign(model="stranger", family="another", n_parameters=7)
    with_stranger = (
        pd.concat([table, table[table["model"] == models["model"].iloc[0]].assign(model="stranger")])
        for table in (features, metrics)
    )
    again = scaling_tables(*with_stranger, pd.concat([models.assign(family="one"), stranger]))
    pd.testing.assert_frame_equal(again["scaling"], made)


def test_a_model_of_unknown_size_has_no_part_in_power_laws(run):
    features, metrics, models = run
    unknown = models["n_parameters"].astype("Int64").where(models["model"] != models["model"].iloc[0])
    known = models[models["model"] != models["model"].iloc[0]]
    made, expected = (
        scaling_tables(features, metrics, table) for table in (models.assign(n_parameters=unknown), known)
    )
    pd.testing.assert_frame_equal(made["scaling"], expected["scaling"])


def test_warmups_of_an_unknown_warmup_are_the_longest():
    models = pd.DataFrame({"model": ["a", "b", "c"], "warmup_steps": [5, None, None], "warmup_at_most": [9, 7, None]})
    assert warmups_of(models) == {"a": 5, "b": 7}
    assert warmups_of(models[["model"]]) == {}


def test_transition_tables_of_planted_jumps(run):
    features, metrics, _ = run
    time = np.arange(N)
    rng = np.random.default_rng(3)
    planted = [
        rows(model, name, (time >= at) * 5.0 + 0.1 * rng.standard_normal(N))
        for model in SIZES
        for name, at in (("h0_max", 20), ("h1_max", 20), ("h2_max", 40))
    ]
    features = pd.concat([features[features.feature == "h1_count"], *planted])
    table = transition_tables(features, metrics)["transitions"]
    assert one(table, model="s", feature="h0_max").transition_step == 2000
    assert one(table, model="s", feature="h1_count").reason == "constant or a single value"


def test_early_stopping_by_hand():
    features = rows("s", "neural_persistence", [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    loss = [5.0, 4.0, 3.0, 2.5, 2.6, 2.7, 2.4]
    metrics = pd.DataFrame({"model": "s", "step": STEPS[:7], "metric": "validation_loss", "value": loss})
    table = early_stopping_tables(features, metrics, patience=[2, 4])["early_stopping"]
    two = one(table, patience=2)
    assert (two.stop_step, two.metric_stop_step, two.steps_saved) == (300, 500, 200)
    assert two.regret == 0.0
    four = one(table, patience=4)
    assert (four.stop_step, four.metric_stop_step, four.metric_triggered) == (500, 600, False)
    assert four.regret == pytest.approx(0.1)
    summary = early_stopping_summary(pd.concat([table, table.assign(model="t", steps_saved=400)]))
    mean = one(summary, patience=2)
    half = scipy.stats.t.ppf(0.975, 1) * 100
    assert (mean.steps_saved, mean.steps_saved_low) == pytest.approx((300, 300 - half))
    assert mean.n_models == 2


def test_the_bytes_do_not_depend_on_the_number_of_threads():
    code = """
import hashlib, numpy as np
from toposcale.statistics import coefficients, prewhitening, resampling
rng = np.random.default_rng(0)
x, y = rng.standard_normal((60, 51)).cumsum(axis=1), rng.standard_normal((2, 51)).cumsum(axis=1)
counts = resampling.moving_block_counts(51, 300, rng)
test = prewhitening.residual_test(x, y, x[:1])
arrays = [resampling.bootstrap_spearman(x, y, counts), resampling.bootstrap_pearson(x, y, counts)]
arrays += [coefficients.pearson(x, y), test.p, test.products]
print(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
"""
    hashes = set()
    for threads in ("1", "2"):
        environment = {"PYTHONPATH": "src", "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
        hashes.add(done.stdout)
    assert len(hashes) == 1


def test_statistics_lists_and_loads_what_it_exports():
    assert dir(statistics) == sorted(statistics.__all__)
    assert all(callable(getattr(statistics, name)) for name in statistics.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = statistics.nothing


def test_the_array_modules_do_not_import_pandas():
    modules = ["coefficients", "resampling", "prewhitening", "multiple_testing", "freedman_lane"]
    code = "import sys\n" + "".join(f"import toposcale.statistics.{name}\n" for name in modules)
    code += "assert 'pandas' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "src"})


def test_weights_without_any_loss_go_through_every_analysis(run):
    features, metrics, _ = run
    analyses = analysis.ANALYSES | reproduction.ANALYSES
    tables = {table: schemas.TABLES[table].frame([]) for entry in analyses.values() for table in entry.makes}
    tables |= {
        "features": features,
        "metrics": metrics[:0],
        "models": arrow_tables.from_rows(
            schemas.TABLES["models"],
            [{"model": model, "seed": 0, "n_parameters": size, "final_step": 5000} for model, size in SIZES.items()],
        ).to_pandas(),
        "training": schemas.TABLES["training"].frame([]).assign(model=""),
        "vectors": schemas.TABLES["vectors"].frame([]),
        "schedules": schemas.TABLES["schedules"].frame([]),
        "published": pd.read_csv(
            ROOT / "src/toposcale/reproduction/published_values.csv", dtype={"value": str, "table": str}
        ),
    }
    config = config_reading.resolve({"models": {"m": {"kind": "folder", "path": "."}}})
    settings = {
        **config["statistics"],
        **{"score_metrics": [], "loss_metric": None},
        **{"fractions": [0.5], "decision": config["decision"], "tasks": config["metrics"]["tasks"]},
        **{
            "training_settings": config["training"],
            "corpus_settings": config["corpus"],
            "seeds": [0],
            "reproduces": ["paper"],
        },
    }
    for name, entry in analyses.items():
        chosen = {key: settings[key] for key in entry.settings} | (
            {"resamples": 20} if "resamples" in entry.settings else {}
        )
        made = entry.load()(**{table: tables[table] for table in entry.reads}, **chosen)
        tables |= made
        assert all(list(made[table].columns) == schemas.TABLES[table].names for table in made), name
    assert tables["verdicts"].empty
    [summary] = tables["summary"]["answer"]
    assert "No loss is known" in summary
