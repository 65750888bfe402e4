"""`toposcale.test_metric`: planted metrics are found, others are not, and what cannot be tested is said so."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import toposcale
from toposcale.__main__ import main
from toposcale.analysis import metric_answers
from toposcale.analysis.metric_answers import Question, noisy_losses, over_checkpoints
from toposcale.analysis.metric_table import metric_table
from toposcale.analysis.verdicts import verdict_tables
from toposcale.io.errors import UserError
from toposcale.statistics.prewhitening import phase_randomised

N = 80


def run_of(seed, n=N, **extra):
    """A run with a loss, a metric that shares its residuals, one that leads it, and one that only drifts."""
    random = np.random.default_rng(seed)
    shocks, time = random.standard_normal(n + 1), np.arange(n)
    noise = random.standard_normal((2, n))
    return pd.DataFrame(
        {
            "step": 10 * time,
            "validation_loss": 3 + 2 / np.sqrt(1 + time) + 0.02 * shocks[:-1],
            "same": shocks[:-1] + noise[0] - np.log1p(time),
            "leads": shocks[1:] + noise[1] + 0.1 * time,
            "drifts": -np.log1p(time) + 0.2 * np.cumsum(random.standard_normal(n)),
            **extra,
        }
    )


def answers(table, *args, **options):
    """The answers by metric and question."""
    rows = toposcale.test_metric(table, *args, **{"warmup_steps": 0} | options).to_frame()
    return {(row.metric, row.question): row for row in rows.itertuples()}


def test_test_metric_finds_planted_metrics():
    found = answers(run_of(0))
    assert [found[name, "within runs"].answer for name in ("same", "leads", "drifts")] == ["yes", "no", "no"]
    assert [found[name, "ahead"].answer for name in ("same", "leads", "drifts")] == ["no", "yes", "no"]
    same, drifts = found["same", "within runs"], found["drifts", "within runs"]
    assert same.low < 6 / np.pi * np.arcsin(np.sqrt(0.5) / 2) < same.high
    assert drifts.spearman > 0.7
    assert drifts.spearman_placebo > 0.7
    assert f"{drifts.detectable:.2f} or more would be found in 80%" in drifts.sentence


@pytest.mark.parametrize("shocks", [0.02, 0.0])
def test_positive_control_is_found_as_often_as_promised(shocks):
    """The loss with noise, a loss of independent shocks or a random walk, within runs and ahead: 80% of 100 within 0.15."""
    table = pd.concat([run_of(seed).assign(run=seed) for seed in range(3)], ignore_index=True)
    if not shocks:
        walks = np.random.default_rng(9).standard_normal((3, N)).cumsum(axis=1)
        table["validation_loss"] = 3 - table["step"] / 400 + 0.05 * walks.ravel()
    found = answers(table, "drifts")
    for question in ("within runs", "ahead"):
        assert 0.65 <= found["drifts", question].positive_control <= 0.95


def test_noisy_losses_are_the_loss_and_independent_noise():
    columns = {"metrics": ["drifts"], "target": None, "given": None, "run": None, "settings": None, "warmup_steps": 0}
    [run] = over_checkpoints(metric_table(run_of(0), **columns), Question.WITHIN, 0, 0)[1]
    loss, effects = run.segment.targets[0], np.repeat([1.0, 0.5], 300)
    noise = noisy_losses(run, effects, np.random.default_rng(0)) - loss
    assert not noise[:300].any()
    assert noise[300:].std() == pytest.approx(0.02 * np.sqrt(1 / 0.5**2 - 1), rel=0.25)  # of 80 points
    assert abs((noise[300:] @ (loss - loss.mean())).mean()) < 0.05


def test_test_metric_ahead_by_two_checkpoints():
    table = run_of(1, 230)
    table["leads"] = table["leads"].shift(1, fill_value=0.0)  # tells the loss of now, and nothing of what comes
    table["two"] = np.append(table["validation_loss"].diff().to_numpy()[2:], [0, 0]) + 0.01 * table["drifts"]
    table["two"] += 0.02 * np.random.default_rng(2).standard_normal(230)
    found = answers(table, ["leads", "two"], ahead=2)
    assert found["two", "ahead"].answer == "yes"
    assert found["leads", "ahead"].answer == "no"


def test_test_metric_has_the_answers_of_the_report():
    runs = {f"size-{size}": run_of(size, 60) for size in range(3)}
    for name, run in runs.items():
        random = np.random.default_rng(len(name) + run.index.size)
        run["frobenius_norm"] = 5 + np.sqrt(run["step"]) + 0.05 * np.cumsum(random.standard_normal(60))
    table = pd.concat([run.assign(model=name) for name, run in runs.items()], ignore_index=True)
    long = table.melt(["model", "step"], var_name="metric")
    is_loss = long["metric"] == "validation_loss"
    features = long[~is_loss].rename(columns={"metric": "feature"}).assign(source="weights", layer="all")
    models = pd.DataFrame({"model": list(runs), "warmup_steps": 50})
    tables = verdict_tables(features, long[is_loss], models, resamples=10)
    verdicts = tables["verdicts"].query("model == 'pooled' and question == 'beyond_the_norm'").set_index("feature")
    found = answers(table, ["same", "leads", "drifts"], given=["step", "frobenius_norm"], warmup_steps=50)
    assert set(verdicts.loc[["same", "drifts"], "answer"]) == {"yes", "no"}
    for name in ("same", "leads", "drifts"):
        row, verdict = found[name, "within runs"], verdicts.loc[name]
        assert row.answer == verdict["answer"]
        assert (row.estimate, row.p, row.q) == tuple(verdict[["estimate", "p", "q"]])


def test_test_metric_has_the_answers_of_the_report_of_the_default_run(monkeypatch):
    """`default_run.csv.gz`: the 34 tested features of the weights, of whole models, and the validation loss."""
    for count in ("SIMULATED_AT_AN_EFFECT", "CONTROLS_DRAWN"):  # the power is not compared
        monkeypatch.setattr(metric_answers, count, 10)
    table = pd.read_csv(Path(__file__).with_name("default_run.csv.gz"))
    features = list(table.columns[3:-1])
    long = table.melt(["model", "step"], var_name="metric")
    is_loss = long["metric"] == "validation_loss"
    models = pd.DataFrame({"model": table["model"].unique(), "warmup_steps": 40.0})
    of_weights = long[~is_loss].rename(columns={"metric": "feature"}).assign(source="weights", layer="all")
    verdicts = verdict_tables(of_weights, long[is_loss], models, resamples=10)["verdicts"].set_index("feature")
    report = verdicts.query("model == 'pooled' and question == 'beyond_the_norm'").loc[features]
    result = (
        toposcale.test_metric(table, features, given="frobenius_norm", warmup_steps=40).to_frame().set_index("metric")
    )
    within = result[result["question"] == "within runs"].loc[features]
    assert len(features) == 34 == (within["answer"] != "not tested").sum()
    columns = ["answer", "estimate", "p", "q"]
    assert within[columns].to_dict() == report[columns].to_dict()


WRONG = {
    "five rows": (run_of(0, 5), "same", "evenly spaced checkpoints after twice the warm-up; the test needs "),
    "constant": (run_of(0, same=1.0), "same", "it is constant"),
    "the loss": (run_of(0), "validation_loss", "it is the loss itself"),
    "a multiple": (
        run_of(0).assign(same=lambda rows: 2 * rows.validation_loss + 1),
        "same",
        "a copy of validation_loss",
    ),
    "perplexity": (
        run_of(0).assign(same=lambda rows: np.exp(rows.validation_loss)),
        "same",
        "a copy of validation_loss",
    ),
    "shifted": (
        run_of(0).assign(same=lambda rows: rows.validation_loss.shift(-1)),
        "same",
        "copy of validation_loss, shifted by 1 row",
    ),
    "a covariate": (
        run_of(0).assign(weight_norm=lambda rows: rows.drifts),
        "weight_norm",
        "it is among the covariates",
    ),
    "all NaN": (run_of(0, same=np.nan), "same", "no step has both"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_metric_that_cannot_be_tested_gets_a_reason(case):
    table, metric, reason = WRONG[case]
    found = answers(table, metric)
    for question in ("within runs", "ahead"):
        row = found[metric, question]
        assert (row.answer, np.isnan(row.q)) == ("not tested", True)
        assert reason in row.reason
        assert row.sentence == f"Not tested: {row.reason}."


def test_one_run_is_not_compared_with_others():
    assert answers(run_of(0), "same")["same", "between runs"].reason.startswith("1 finished run with")


def test_values_that_are_not_finite_are_left_out_and_counted():
    table = run_of(0)
    table.loc[[3, 4], "same"] = np.inf
    test = toposcale.test_metric(table, "same", warmup_steps=0)
    assert "same: 2 values not finite, left out" in test.notes
    assert test.to_frame()["n_points"].iloc[0] == N - 5


def test_test_metric_of_a_course_that_unrelated_runs_share():
    shared = np.random.default_rng(5).standard_normal(N)
    tables = [
        run_of(seed).assign(
            run=seed, validation_loss=lambda r: r.validation_loss + 0.03 * shared, same=lambda r: r.drifts + shared
        )
        for seed in range(6)
    ]
    row = answers(pd.concat(tables), "same")["same", "within runs"]
    assert row.answer == "not tested"
    assert "follows the losses of other runs" in row.reason


def between(settings=1, seeds=30, effect=1.0):
    """Runs whose metric at 30% tells their end beyond the loss until then."""
    random, tables = np.random.default_rng(3), []
    for number in range(settings * seeds):
        hidden, size = random.standard_normal(), number // seeds
        time = np.arange(30)
        loss = 3 + 2 / np.sqrt(1 + time) + 0.02 * random.standard_normal(30) + 0.1 * size
        loss -= 0.1 * effect * hidden * (time > 15)
        metric = hidden + 0.1 * random.standard_normal(30)
        tables.append(pd.DataFrame({"step": time, "loss": loss, "m": metric, "run": number, "setting": f"size {size}"}))
    return pd.concat(tables)


def test_between_runs_finds_a_metric_that_tells_their_end():
    row = answers(between())["m", "between runs"]
    assert (row.answer, row.n_runs) == ("yes", 30)
    assert row.estimate < row.high < -0.5
    assert row.gain > 0.3
    null = answers(between(effect=0.0))["m", "between runs"]
    assert null.answer == "no"
    assert null.gain < 0.05


def test_between_runs_tells_seeds_and_settings_apart():
    found = answers(between(3, 10), settings="setting")
    assert found["m", "between seeds"].answer == "yes"
    assert found["m", "between settings"].reason.startswith("3 settings with")


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    run_of(0).to_csv(path, index=False)
    return path


def test_test_metric_reads_the_same_of_every_file(log, tmp_path):
    table = run_of(0)
    table.rename(columns=" {} ".format).to_csv(tmp_path / "spaced.csv", index=False)
    table.to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "log.parquet")
    wandb = table.rename(columns=lambda name: f"my run - {name}" if name != "step" else "Step")
    wandb.assign(**{"my run - same__MAX": 0.0}).to_csv(tmp_path / "wandb.csv", index=False)
    features = table.melt("step", ["same"], "feature").assign(layer="all")
    features.to_csv(tmp_path / "features.csv", index=False)
    table[["step", "validation_loss"]].to_csv(tmp_path / "loss.csv", index=False)
    long = table.melt("step", ["validation_loss"], "metric").assign(model="mine")
    long.to_csv(tmp_path / "long.csv", index=False)
    p = answers(log, "same")["same", "within runs"].p
    for files in (
        "spaced.csv",
        "log.jsonl",
        "log.parquet",
        "wandb.csv",
        ("features.csv", "loss.csv"),
        ("features.csv", "long.csv"),
    ):
        names = [files] if isinstance(files, str) else files
        assert answers([tmp_path / name for name in names], "same")["same", "within runs"].p == p


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "sama"}, "--metric sama: no such column; did you mean same"),
        ({"metric": "words"}, "--metric words: the column holds 'x', where numbers are needed"),
        ({"metric": "empty"}, "--metric empty: the column holds nothing, where numbers are needed"),
        ({"given": ["words"]}, "--given words: the column holds 'x'"),
        ({"run": "step"}, "no column of the step; it has validation_loss, "),
        ({"target": "losses"}, "--target losses"),
        ({"given": ["norm_of_all"]}, "--given norm_of_all"),
        ({"ahead": 0}, "--ahead 0: at least 1 checkpoint"),
        ({"warmup_steps": -5}, "--warmup-steps -5: not a number of steps, 0 or more"),
        ({"warmup_steps": np.nan}, "--warmup-steps nan: not a number of steps"),
        ({"metric": "step"}, "--metric step: the step is held fixed in every test"),
        ({"given": "validation_loss"}, "--given validation_loss: it is the loss whose"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(UserError, match=message):
        toposcale.test_metric(run_of(0).assign(words="x", empty=None), **options)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (run_of(0)[:0], "table0: no rows"),
        (run_of(0).assign(step=["1"] * (N - 1) + ["last"]), "table0: step: the column holds 'last', where numbers"),
        (run_of(0).assign(validation_loss=None), "--target validation_loss: the column holds nothing"),
        (run_of(0).rename(columns={"drifts": "same"}), "table0: two columns are called same; rename or remove one"),
    ],
)
def test_a_table_that_cannot_be_tested_is_refused(table, message):
    with pytest.raises(UserError, match=message):
        toposcale.test_metric(table, "same")


def test_a_long_log_is_thinned(monkeypatch):
    """Every third row that has the metric, not of all rows, most of which have none; a short one is left as it is."""
    table = run_of(0)
    table.loc[table.index % 2 == 1, "same"] = np.nan
    unmeasured = answers(table, "same")["same", "within runs"]
    monkeypatch.setattr("toposcale.analysis.metric_table.MAX_ROWS", N // 6 + 1)
    test = toposcale.test_metric(table, "same", warmup_steps=0)
    assert f"one row in 3 is tested, of {N // 2} with the loss and a metric" in test.notes
    thinned = table[::6].reset_index(drop=True)
    assert test.to_frame()["spearman"].iloc[0] == answers(thinned, "same")["same", "within runs"].spearman
    assert unmeasured.spearman != test.to_frame()["spearman"].iloc[0]


def test_test_metric_asks_for_the_column_of_runs():
    with pytest.raises(UserError, match=r"the step goes back at row 81; .* \(--run\)"):
        toposcale.test_metric(pd.concat([run_of(0), run_of(1)], ignore_index=True))


def test_metric_command_prints_answers_json_and_a_picture(log, tmp_path, capsys):
    picture = tmp_path / "metric.svg"
    options = ["test-metric", str(log), "--metric", "same,drifts", "leads", "--warmup-steps", "0"]
    assert main([*options, "--json", "--plot", str(picture)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["metric"] for row in rows] == ["same"] * 3 + ["drifts"] * 3 + ["leads"] * 3
    assert picture.read_text().startswith("<?xml")
    assert main([*options, "--csv"]) == 0
    assert capsys.readouterr().out.startswith("question,metric,target,given,answer,estimate")


def test_a_result_is_a_line_a_table_and_a_picture():
    from matplotlib.figure import Figure

    test = toposcale.test_metric(run_of(0), "same", warmup_steps=0)
    assert repr(test) == "<MetricTest: same within runs: yes, same ahead: no, same between runs: not tested>"
    assert test._repr_html_().startswith("<table")
    axes = Figure().add_subplot()
    assert test.plot(axes) is axes
    assert len(axes.lines) == 1 + 2 * 2


def test_phase_randomised_keeps_trend_and_spectrum():
    random, time = np.random.default_rng(0), np.arange(300)
    walk = np.cumsum(random.standard_normal(300)) + 0.5 * time
    drawn = phase_randomised(walk, 500, random)
    assert np.corrcoef(drawn.mean(axis=0), time)[0, 1] > 0.99
    steps = np.diff(drawn, axis=1)
    assert steps.std() == pytest.approx(np.diff(walk).std(), rel=0.2)
    assert abs((steps - steps.mean(axis=0)) @ (np.diff(walk) - 0.5)).mean() < 3 * 300**0.5
