"""Laws are judged on what they may see: the cut, the numbers by hand, refusals, failures, and the resampling of sources."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from toposcale.datasets import PublishedRun, load_published_runs
from toposcale.forecasting import Known, LearningRateSchedule, NoForecast, Prediction, RunFacts, evaluate
from toposcale.forecasting.evaluation import (
    SHARES,
    decisions_of_point,
    forecasts_of_run,
    judged_of,
    learnt_laws,
    subjects_of,
    tasks_of,
)
from toposcale.forecasting.laws.prior_table import LearntJoint
from toposcale.io.errors import UserError

TOKENS = 1e6


def a_run(name, size=10**8, steps=10_000, source="s", family="f", shape="linear", end=None):
    """A run whose last loss is a number that occurs nowhere else."""
    at = np.unique(np.geomspace(10, steps, 400).round())
    losses = 2 + 30 * size**-0.2 + 5 * at**-0.5
    losses[-1] = losses[-1] if end is None else end
    rates = np.ones(steps + 1) if shape == "constant" else np.linspace(1, 0.1, steps + 1)
    return PublishedRun(
        RunFacts(name, size, TOKENS, family),
        LearningRateSchedule(steps, rates),
        steps=at,
        losses=losses,
        checkpoint_steps=at,
        checkpoint_losses=losses,
        source=source,
        size=name,
        shape=shape,
    )


def judge(law, runs, known=Known.ALONE, mapped=map):
    """The forecasts and decisions of a law that `evaluate` summarises."""
    subjects = subjects_of(runs, SHARES, known)
    forecasts, decisions = tasks_of(learnt_laws(law, runs), subjects, SHARES)
    return judged_of(mapped(forecasts_of_run, forecasts), mapped(decisions_of_point, decisions))


class Fixed:
    """A law that forecasts one loss."""

    def __init__(self, value=3.0, deviation=0.1):
        self.value, self.deviation = value, deviation

    def fit(self, run, others=()):
        return self

    def predict(self, targets):
        return [Prediction.of(self.value, self.deviation) for _ in targets]


def arrays_in(thing, seen):
    """Every array that can be reached from an object, also the one that a view is of."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
        parts = [thing.base]
    elif isinstance(thing, Mapping):
        parts = thing.values()
    elif isinstance(thing, (list, tuple)):
        parts = thing
    else:
        parts = vars(thing).values() if hasattr(thing, "__dict__") else []
    for part in parts:
        yield from arrays_in(part, seen)


@dataclass
class Cheat:
    """A law that forecasts the secret end of a run if that number lies anywhere in what it was given."""

    secrets: dict
    n_fits: int = 0

    def learn(self, runs, left_out):
        self.learnt = list(runs)

    def fit(self, run, others=()):
        self.n_fits += 1
        self.run, self.others = run, others
        return self

    def predict(self, targets):
        assert self.n_fits == 1, "a copy of the law is fitted once"
        secret = self.secrets[self.run.model]
        seen = [array for array in arrays_in([self.run, self.others, self.learnt, targets], set()) if array.ndim]
        found = any(np.any(array == secret) for array in seen)
        return [Prediction.of(secret if found else 1.0, 0.01) for _ in targets]


def test_evaluate_shows_a_cheating_law_no_end():
    secrets = {f"{source}{size}": 2.0 + size / 7 + ord(source) / 1e3 for source in "ab" for size in (1, 2, 3)}
    runs = [
        a_run(name, 10**8 * 2 ** int(name[1]), source=name[0], family=name[0], end=end) for name, end in secrets.items()
    ]
    law = Cheat(secrets)
    for known in Known:
        rows = judge(law, runs, known=known).forecasts
        assert len(rows) == 3 * (6 if known is Known.ALONE else 4)
        assert (rows["forecast"] == 1.0).all()
    law.learnt = []
    [found] = law.fit(runs[0]).predict([runs[0].target()])  # given the whole run it cheats
    assert found.value == secrets["a1"]


def test_evaluate_cuts_a_law_to_its_share_and_to_other_sources():
    seen = []

    class Spy(Fixed):
        def learn(self, runs, left_out):
            seen.append((left_out, {run.source for run in runs}))

        def fit(self, run, others=()):
            seen.append((run.model, run.steps.max() / run.final_step, [other.model for other in others]))
            assert run.checkpoint_steps.max() == run.steps.max()
            assert len(run.schedule.rates) == run.final_step + 1
            return self

    runs = [a_run("a1", source="a", family="a"), a_run("a2", 4 * 10**8, source="a", family="a")]
    runs.append(a_run("b1", source="b", family="b"))
    evaluate(Spy(), runs, at=(0.2, 0.5))
    assert seen[:2] == [("a", {"b"}), ("b", {"a"})]
    assert all(share <= 0.5 and not others for _, share, others in seen[2:])
    seen.clear()
    evaluate(Spy(), runs, at=(0.5,), known=Known.ONE_SMALLER)
    assert seen[2:] == [("a2", pytest.approx(0.5, abs=0.01), ["a1"])]


def test_evaluate_gives_the_numbers_by_hand():
    """Ends 3.1 and 2.9 of one family, 3.5 of another source; a law that says 3.0, from 2.81 to 3.20."""
    ends = {"a": 3.1, "b": 2.9, "c": 3.5}
    runs = [a_run(name, 10**8 + len(name), source="yz"[name == "c"], family="yz"[name == "c"]) for name in ends]
    runs = [
        PublishedRun(**{**vars(run), "losses": run.losses * 0 + end, "checkpoint_losses": run.losses * 0 + end})
        for run, end in zip(runs, ends.values(), strict=True)
    ]
    law, low, high = Fixed(), *(3 * np.exp(np.array([-1, 1]) * 1.959964 * 0.1 / 3)).tolist()
    table = evaluate(law, runs, at=(0.5,)).set_index(["source", "at"])
    y, z, total = (table.loc[source].loc[0.5] for source in ("y", "z", "all"))
    assert (y["n"], y["answered"], y["refused"]) == (2, 2, 0)
    assert (y["mean_error"], y["bias"], y["coverage"]) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9), 1.0)
    assert (z["bias"], z["coverage"]) == (pytest.approx(-0.5), 0.0)
    assert z["score"] == pytest.approx(high - low + 40 * (3.5 - high))
    assert total["mean_error"] == pytest.approx(0.3)
    assert (total["mean_error_low"], total["mean_error_high"]) == (pytest.approx(0.1), pytest.approx(0.5))
    assert np.isnan(y["mean_error_low"])


class BySize(Fixed):
    """A law that says which of two sizes ends lower."""

    def __init__(self, larger_is_better):
        self.larger_is_better = larger_is_better

    def fit(self, run, others=()):
        self.size = run.n_parameters
        return self

    def predict(self, targets):
        better = [(target.n_parameters > self.size) == self.larger_is_better for target in targets]
        return [Prediction.of(2.0 if is_better else 3.0, 0.1) for is_better in better]


def decided_runs():
    """A small run, and a larger one that spends half of its compute; five times, since fewer points are not judged."""
    runs = []
    for number in range(5):
        runs.append(a_run(f"small{number}", 10**8 + number, 10_000, end=3.0))
        runs.append(a_run(f"large{number}", 4 * 10**8 + number, 1_250, end=2.6))
    return runs


def test_evaluate_gives_the_regret_of_the_lowest_forecast():
    runs = decided_runs()
    wrong, right = (evaluate(BySize(larger), runs, at=(0.5,)) for larger in (False, True))
    total = [table[table["at"].isna() & (table["source"] == "all")]["regret"].item() for table in (wrong, right)]
    assert total == [pytest.approx(0.4), 0.0]
    decisions = judge(BySize(True), runs).decisions
    assert decisions["answered"].all()
    assert (decisions["setting"] == "alone").all()


def test_evaluate_gives_no_regret_of_a_law_of_one_size():
    class OneSize(BySize):
        def predict(self, targets):
            if any(target.n_parameters != self.size for target in targets):
                raise NoForecast("another size")
            return super().predict(targets)

    table = evaluate(OneSize(True), decided_runs(), at=(0.5,))
    assert table["regret"].isna().all()


def test_evaluate_counts_refusals_with_their_reason():
    class Picky(Fixed):
        def fit(self, run, others=()):
            if run.progress.step < 4000:
                raise NoForecast("too early")
            return self

    judged = judge(Picky(), [a_run("a"), a_run("b", 2 * 10**8)])
    assert judged.forecasts.groupby("share")["reason"].unique().map(list).to_dict() == {
        0.2: ["too early"], 0.3: ["too early"], 0.5: [""],
    }  # fmt: skip
    table = evaluate(Picky(), [a_run("a")], at=(0.2, 0.5))
    assert table[["at", "answered", "refused"]].iloc[:2].to_numpy().tolist() == [[0.2, 0, 1.0], [0.5, 1, 0.0]]


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (
            lambda targets: 1 / 0,
            "Law: predict: ZeroDivisionError: division by zero; a law refuses by raising NoForecast",
        ),
        (lambda targets: [], "Law: predict gave 0 predictions for 1 targets"),
        (lambda targets: [3.0], "Law: predict gave a float, not a Prediction"),
        (lambda targets: [Prediction(3.0, 3.1, 3.2)], "Law: an interval does not hold its forecast: 3 "),
    ],
)
def test_evaluate_names_the_law_that_fails(predict, message):
    class Law(Fixed):
        def predict(self, targets):
            return predict(targets)

    with pytest.raises(UserError, match=message):
        evaluate(Law(), [a_run("a")])


def test_judge_gives_the_same_rows_whoever_maps_them():
    runs = load_published_runs("multi-power-law")
    with ThreadPoolExecutor(2) as pool:
        one, other = judge(Fixed(), runs), judge(Fixed(), runs, mapped=pool.map)
    for name in ("forecasts", "decisions"):
        left, right = (getattr(judged, name).drop(columns="seconds", errors="ignore") for judged in (one, other))
        pd.testing.assert_frame_equal(left, right)


def test_evaluate_gives_the_committed_numbers_of_the_joint_law():
    """Those of docs/decisions.md, whose table is made of the same rows."""
    rows = pd.read_csv(ROOT / "studies/decisions/published_runs/forecasts.csv")
    row = rows.query("method == 'joint' and known == 'alone' and source == 'modded-nanogpt'").iloc[0]
    table = evaluate(LearntJoint(), load_published_runs("modded-nanogpt"))
    measured = table[(table["source"] == "modded-nanogpt") & table["at"].isna()].iloc[0]
    for name, column in (("n", "n"), ("mean_error", "mean_error"), ("coverage", "inside"), ("score", "score")):
        assert measured[name] == pytest.approx(row[column], rel=1e-3), name
