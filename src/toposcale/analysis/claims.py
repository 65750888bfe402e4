"""Claims of the four sources, each with its answer by a run: reproduced, not reproduced, opposite or not tested.

`CLAIMS` is the registry; a new claim is one entry.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis import feature_answers, forecast_answers
from toposcale.analysis.controls import NOTHING
from toposcale.analysis.questions import CLOSE, LEVEL, YES
from toposcale.analysis.series import MIN_FOR_CORRELATION, final_values, whole_model
from toposcale.analysis.verdicts import POOLED
from toposcale.features.registry import WEIGHT_NORM, group_of
from toposcale.features.roles import Role, role_of
from toposcale.io import schemas
from toposcale.io.schemas import METRIC_SOURCE
from toposcale.landscape.planes import most_informative
from toposcale.statistics.coefficients import MAX_PERMUTED, correlation_p_value, permutation_p_value, spearman

PLAN, PAPER, EMBEDDINGS, LANDSCAPES = "research plan", "paper", "embedding report", "landscape review"
FEWEST_SIZES = 5
"""Fewer sizes give no Spearman correlation with an exact p of at most 0.05."""
MOST_LISTED = 6
EARLY, FREE = 0.1, 0.01
"""Share of training within which a transition is early; and regret, nats, below which stopping costs nothing."""
LOSSES = ("training_loss", "validation_loss")
COMPARED = (
    *("h1_entropy", "h1_count", "h1_max", "h1_total"),
    *("effective_rank", "participation_ratio", "eigenspectrum_decay"),
)
"""Features that the embedding report compares with the perplexity."""
PERPLEXITIES = ("perplexity", "validation_loss", "training_loss")

Run = Mapping[str, pd.DataFrame]
"""The tables of a run by name, those that `analyses` lists."""


class ClaimAnswer(StrEnum):
    """Answer of a run to a claim; opposite: the contrary passes the same test."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    OPPOSITE = "opposite"
    NOT_TESTED = "not tested"


class Outcome(NamedTuple):
    """Answer to a claim, the numbers behind it, and why it was not tested."""

    answer: ClaimAnswer
    numbers: str = ""
    reason: str = ""


def not_tested(reason: str, numbers: str = "") -> Outcome:
    """Return that a claim was not tested, and why."""
    return Outcome(ClaimAnswer.NOT_TESTED, numbers, reason)


def answer_of(holds: bool, contrary: bool = False) -> ClaimAnswer:
    """Return the answer where a claim, or its contrary, passed."""
    if holds:
        return ClaimAnswer.REPRODUCED
    return ClaimAnswer.OPPOSITE if contrary else ClaimAnswer.NOT_REPRODUCED


class Claim(NamedTuple):
    """A claim: source, name there, sentence, how it is tested, and the function of a run's tables that tests it.

    published: the quantity of the published values whose range is told beside this run's.
    """

    source: str
    name: str
    statement: str
    test: str
    check: Callable[[Run], Outcome]
    published: str = ""


def claims_tables(*, published: pd.DataFrame, **run: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Make the table claims: a row for each of `CLAIMS`."""
    rows = []
    for position, claim in enumerate(CLAIMS, 1):
        outcome = claim.check(run)
        values = published[published["quantity"] == claim.published]["value"]
        of_source = [float(value.lstrip("<")) for value in values.astype(str)]
        said = f" Published: {_span(pd.Series(of_source))}." if of_source else ""
        row = {"position": position, "source": claim.source, "claim": claim.name, "test": claim.test}
        row |= {"statement": claim.statement + said, **outcome._asdict(), "answer": str(outcome.answer)}
        rows.append(row)
    return {"claims": schemas.TABLES["claims"].frame(rows)}


def _span(values: pd.Series) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


def _listed(values: pd.Series) -> str:
    """Return numbers by model, or their range where they are many."""
    if len(values) > MOST_LISTED:
        return f"median {values.median():.3g} ({_span(values)}) over {len(values)} models"
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def _by_size(run: Run, values: pd.Series) -> pd.Series:
    """Return values by model in the order of the sizes, those that are not finite left out."""
    order = run["models"].sort_values(["n_parameters", "model"])["model"]
    return values.reindex([model for model in order if model in values.index]).dropna()


def _one_sign(run: Run, values: pd.Series, sign: int, least: float = 0.0, absent: str = "") -> Outcome:
    """Return whether the value of every model has a sign, and a size of at least `least`."""
    values = _by_size(run, values)
    if values.empty:
        return not_tested(absent or "not measured in this run, or too few checkpoints")
    signed = sign * values
    contrary = bool((signed <= -least).all() and (signed < 0).all())
    return Outcome(answer_of(bool((signed >= least).all() and (signed > 0).all()), contrary), _listed(values))


def _over_sizes(run: Run, values: pd.Series, sign: int) -> Outcome:
    """Return whether a value rises (sign 1) or falls with size; the models of a size are averaged first."""
    values = _by_size(run, values)
    sizes = values.groupby(run["models"].set_index("model")["n_parameters"].reindex(values.index)).mean()
    if len(sizes) < FEWEST_SIZES:
        count = f"{len(sizes)} size{'' if len(sizes) == 1 else 's'}"
        return not_tested(f"{count}; at least {FEWEST_SIZES} are needed for a p of {LEVEL}", _listed(values))
    rho = float(spearman(sizes.index, sizes)[0, 0])
    counted = len(sizes) <= MAX_PERMUTED
    places = sizes.index.argsort()
    p = float((permutation_p_value(places, sizes.rank()) if counted else correlation_p_value(rho, len(sizes))).item())
    found = p <= LEVEL
    numbers = f"Spearman with size {rho:.2f}, p = {p:.2g}; {_listed(values)}"
    return Outcome(answer_of(found and sign * rho > 0, found and sign * rho < 0), numbers)


def _correlations(run: Run, source: str, feature: str, metrics: tuple[str, ...]) -> pd.Series:
    """Return the Spearman correlation of a feature of whole models with the first metric that there is, by model."""
    table = whole_model(run["correlations"])
    plain = table[(table["control"] == NOTHING) & (table["source"] == source) & (table["feature"] == feature)]
    metric = next((name for name in metrics if (plain["metric"] == name).any()), "")
    return plain[plain["metric"] == metric].set_index("model")["spearman"]


def _follows(run: Run, *, feature: str, sign: int, source: str = "weights") -> Outcome:
    metrics = LOSSES if source == "weights" else PERPLEXITIES
    return _one_sign(run, _correlations(run, source, feature, metrics), sign, CLOSE)


def _follows_more_in_larger(run: Run, *, feature: str, sign: int) -> Outcome:
    return _over_sizes(run, _correlations(run, "weights", feature, LOSSES), sign)


def _both_signs(run: Run, *, feature: str) -> Outcome:
    rho = _by_size(run, _correlations(run, "weights", feature, LOSSES))
    if len(rho) < 2:
        return not_tested("fewer than two models have this correlation", _listed(rho))
    return Outcome(answer_of(rho.min() < 0 < rho.max()), _listed(rho))


def _courses(run: Run, source: str, feature: str) -> dict[str, pd.Series]:
    """Return a feature of whole models by model: finite values by step."""
    table = whole_model(run["features"])
    rows = table[(table["source"] == source) & (table["feature"] == feature)].sort_values("step")
    rows = rows[np.isfinite(rows["value"])]
    return {str(model): of_model.set_index("step")["value"] for model, of_model in rows.groupby("model")}


def _with_step(run: Run, source: str, feature: str) -> pd.Series:
    """Return the Spearman correlation of a feature with the step, by model."""
    courses = _courses(run, source, feature)
    rho = {
        model: float(spearman(course.index, course)[0, 0])
        for model, course in courses.items()
        if len(course) >= MIN_FOR_CORRELATION
    }
    return pd.Series(rho, dtype=float)


def _monotonic(run: Run) -> Outcome:
    courses = _courses(run, "weights", "neural_persistence")
    rises = {model: float((np.diff(course) > 0).mean()) for model, course in courses.items() if len(course) > 2}
    shares = _by_size(run, pd.Series(rises, dtype=float))
    if shares.empty:
        return not_tested("fewer than three checkpoints have neural persistence")
    rho = _by_size(run, _with_step(run, "weights", "neural_persistence"))
    numbers = f"share of rising checkpoints: {_listed(shares)}; Spearman with the step: {_listed(rho)}"
    return Outcome(answer_of(bool((shares == 1).all()), bool(len(rho) and (rho <= -CLOSE).all())), numbers)


def _efficiency(run: Run) -> Outcome:
    """Use the test beyond the norm: it detrends, and loss gained is minus the change of the loss."""
    rows = whole_model(run["verdicts"])
    rows = rows[(rows["model"] == POOLED) & (rows["question"] == "beyond_the_norm")]
    rows = rows[(rows["feature"] == "neural_persistence") & rows["metric"].isin(LOSSES)].sort_values("metric")
    tested = rows.dropna(subset=["p"])
    power = run["sensitivity"][run["sensitivity"]["question"] == "beyond_the_norm"]
    if tested.empty:
        reasons = [*rows["reason"], *power["reason"], "neural persistence was not measured"]
        return not_tested(next(filter(None, reasons)))
    row = tested.iloc[-1]
    numbers = f"correlation of prewhitened residuals with the {row['metric'].replace('_', ' ')} {row['estimate']:.2f}, "
    numbers += f"p = {row['p']:.2g}"
    if row["p"] > LEVEL and not (power["found"] == YES).any():
        return not_tested("this run's test does not detect the loss itself (positive control)", numbers)
    numbers += f"; {feature_answers.could(power['detectable'].iloc[0])}" if len(power) else ""
    found = row["p"] <= LEVEL
    return Outcome(answer_of(found and row["estimate"] < 0, found and row["estimate"] > 0), numbers)


def _steps_of(run: Run, source: str, feature: str, column: str) -> pd.Series:
    """Return a column of the table transitions for a series of whole models, by model."""
    table = whole_model(run["transitions"])
    return table[(table["source"] == source) & (table["feature"] == feature)].set_index("model")[column].dropna()


def _coincide(run: Run) -> Outcome:
    topology = _steps_of(run, "weights", "neural_persistence", "transition_step")
    loss = _steps_of(run, METRIC_SOURCE, LOSSES[1], "settled_step")
    apart = _by_size(run, (topology - loss).dropna())
    if apart.empty:
        return not_tested("no model has both steps")
    courses = _courses(run, "weights", "neural_persistence")
    near = [abs(apart[model]) <= np.diff(courses[str(model)].index).max() for model in apart.index]
    return Outcome(answer_of(all(near)), f"steps from one to the other: {_listed(apart)}")


def _early(run: Run) -> Outcome:
    final = run["models"].set_index("model")["final_step"]
    steps = _steps_of(run, "weights", "neural_persistence", "transition_step")
    shares = _by_size(run, (steps / final).astype(float))
    if shares.empty:
        return not_tested("no transition, or the last step is not known")
    return Outcome(answer_of(bool((shares <= EARLY).all())), f"share of training: {_listed(shares)}")


def _law(run: Run, source: str, feature: str) -> pd.Series | None:
    """Return the power law of a series of whole models in size; None if there is none with an interval."""
    laws = whole_model(run["scaling"])
    laws = laws[(laws["law"] == "power_law") & (laws["source"] == source) & (laws["feature"] == feature)]
    laws = laws.dropna(subset=["exponent_low", "exponent_high"])
    return None if laws.empty else laws.iloc[0]


def _exponent(law: pd.Series) -> str:
    return f"{law['exponent']:.3f} ({law['exponent_low']:.3f} to {law['exponent_high']:.3f})"


NO_LAW = "no power law in size has an interval: at least three sizes are needed"


def _scales(run: Run, *, source: str, feature: str, sign: int) -> Outcome:
    """sign 0: the claim is that it does not scale."""
    law = _law(run, source, feature)
    if law is None:
        return not_tested(NO_LAW)
    rises, falls = law["exponent_low"] > 0, law["exponent_high"] < 0
    holds = not (rises or falls) if sign == 0 else rises if sign > 0 else falls
    contrary = sign != 0 and (falls if sign > 0 else rises)
    return Outcome(answer_of(holds, contrary), f"exponent {_exponent(law)} over {law['n_models']} models")


def _all_scale(run: Run) -> Outcome:
    laws = {name: _law(run, "weights", name) for name in ("neural_persistence", "h0_total", "h1_total")}
    known = {name: law for name, law in laws.items() if law is not None}
    if not known:
        return not_tested(NO_LAW)
    holds = all(law["exponent_low"] > 0 or law["exponent_high"] < 0 for law in known.values())
    numbers = ", ".join(f"{name} {_exponent(law)}" for name, law in known.items())
    return Outcome(answer_of(holds), f"exponents: {numbers}")


def _improves(run: Run) -> Outcome:
    verdict, text, numbers = forecast_answers.forecasting(run["forecast_evaluation"])
    answers = {
        forecast_answers.IMPROVES: ClaimAnswer.REPRODUCED,
        forecast_answers.NOT_SHOWN: ClaimAnswer.NOT_REPRODUCED,
        forecast_answers.WORSENS: ClaimAnswer.OPPOSITE,
    }
    return Outcome(answers[verdict], numbers) if verdict in answers else not_tested(text, numbers)


def _forecast_signs(run: Run) -> Outcome:
    rows = run["forecast_evaluation"]
    rows = rows[(rows["method"] == "combined") & rows["fraction"].isin([0.2, 0.3, 0.5])]
    gains = rows.dropna(subset=["over_power_law_percent"]).set_index("fraction")["over_power_law_percent"]
    if len(gains) < 3:
        return not_tested("forecasts at 20, 30 and 50% of finished runs are needed")
    as_claimed = (gains > 0) == (gains.index > 0.2)
    numbers = ", ".join(f"{gain:+.0f}% at {share:.0%}" for share, gain in gains.items())
    return Outcome(answer_of(bool(as_claimed.all()), not as_claimed.any()), f"error saved: {numbers}")


def _most_forecasts(run: Run) -> Outcome:
    rows = run["forecasts"].dropna(subset=["error"])
    errors = rows.set_index(["fraction", "model", "method"])["error"].abs().unstack()
    if not {"combined", "power_law"} <= set(errors) or (pairs := errors[["combined", "power_law"]].dropna()).empty:
        return not_tested("no finished run has both forecasts")
    better = (pairs["combined"] < pairs["power_law"]).groupby("fraction")
    counts = better.agg(["sum", "size"])
    numbers = ", ".join(f"{won} of {n} at {share:.0%}" for share, won, n in counts.itertuples())
    if (better.size() < FEWEST_SIZES).all():
        return not_tested(f"fewer than {FEWEST_SIZES} models have both forecasts", numbers)
    shares = better.mean()
    return Outcome(answer_of(bool((shares >= 0.6).all()), bool((shares <= 0.4).all())), f"better in {numbers}")


def _one_feature(run: Run) -> Outcome:
    table = whole_model(run["correlations"])
    plain = table[(table["control"] == NOTHING) & table["metric"].isin(LOSSES)].dropna(subset=["spearman_p"])
    groups = plain.groupby(["source", "feature", "metric"])["spearman_p"]
    passed, n_models = groups.max() < LEVEL, groups.size()
    passed = passed[n_models == n_models.max()] if len(n_models) else passed
    if passed.empty or n_models.max() < 2:
        return not_tested("fewer than two models have correlations")
    features = set(passed[passed].index.get_level_values("feature"))
    topological = sorted(name for name in features if group_of(name) == "topology")
    valid = run["tested_features"].query("question == 'beyond_the_norm'")
    numbers = (
        f"{len(topological)} topological features; the norm of the weights "
        f"{'too' if WEIGHT_NORM.feature in features else 'does not'}; by the test with a measured false-positive rate, "
        f"given the norm: {int(valid['found'].sum())} of {int(valid['tested'].sum())} features"
    )
    return Outcome(answer_of(bool(topological)), numbers)


def _different_courses(run: Run) -> Outcome:
    from scipy.stats import kruskal

    rho = _by_size(run, _with_step(run, "weights", "neural_persistence"))
    sizes = run["models"].set_index("model")["n_parameters"].reindex(rho.index)
    groups = [of_size.to_numpy() for _, of_size in rho.groupby(sizes)]
    numbers = f"Spearman of neural persistence with the step: {_listed(rho)}"
    if len(groups) < 2 or min(map(len, groups)) < 3:
        return not_tested("size and seed cannot be told apart: at least three seeds of two sizes are needed", numbers)
    p = float(kruskal(*groups).pvalue)
    return Outcome(answer_of(p <= LEVEL), f"p = {p:.2g}; {numbers}")


def _of_pythia(run: Run, *, feature: str, sign: int) -> Outcome:
    rho = _with_step(run, "weights", feature)
    if "pythia-14m" not in rho:
        return not_tested("pythia-14m is not in this run: config/pythia-14m.yaml has it")
    return _one_sign(run, rho[["pythia-14m"]], sign, CLOSE)


def _parts_differ(run: Run) -> Outcome:
    rows = run["features"]
    rows = rows[(rows["source"] == "weights") & (rows["feature"] == "neural_persistence")]
    rows = rows[rows["step"] == rows.groupby("model")["step"].transform("max")]
    means = rows.groupby(["model", rows["layer"].map(role_of)])["value"].mean().unstack()
    if not {Role.ATTENTION, Role.FEED_FORWARD} <= set(means):
        return not_tested("no model has attention and feed-forward matrices by name")
    apart = _by_size(run, means[Role.ATTENTION] - means[Role.FEED_FORWARD])
    return Outcome(answer_of(bool(len(apart)) and abs(np.sign(apart).sum()) == len(apart)), _listed(apart))


def _above_spectra(run: Run) -> Outcome:
    table = whole_model(run["correlations"])
    rows = table[(table["control"] == NOTHING) & (table["source"] == "embeddings")]
    metric = next((name for name in PERPLEXITIES if (rows["metric"] == name).any()), "")
    rows = rows[(rows["metric"] == metric) & rows["feature"].isin(COMPARED)]
    means = rows["spearman"].abs().groupby([rows["model"], rows["feature"].map(group_of)]).mean().unstack()
    if not {"topology", "spectrum"} <= set(means):
        return not_tested("no model has topology and spectra of embeddings at enough checkpoints")
    return _one_sign(run, means["topology"] - means["spectrum"], 1)


def _two_phases(run: Run) -> Outcome:
    courses = {name: c for name, c in _courses(run, "embeddings", "h1_total").items() if len(c) >= MIN_FOR_CORRELATION}
    if not courses:
        return not_tested(f"embeddings at {MIN_FOR_CORRELATION} checkpoints or more are needed")
    turns = {name: course.idxmin() for name, course in courses.items()}
    inside = [course.index[0] < turns[name] < course.index[-1] for name, course in courses.items()]
    numbers = "step of the least total persistence of H1: " + _listed(_by_size(run, pd.Series(turns)))
    return Outcome(answer_of(all(inside), not any(inside)), numbers)


def _stopping(run: Run) -> Outcome:
    table = whole_model(run["early_stopping"])
    rows = table[(table["feature"] == "neural_persistence") & (table["patience"] == 2)].set_index("model")
    if rows.empty:
        return not_tested("no validation loss beside neural persistence")
    saved, regret = (_by_size(run, rows[name].astype(float)) for name in ("steps_saved", "regret"))
    numbers = f"steps saved: {_listed(saved)}; nats lost: {_listed(regret)}"
    free, costly = bool((regret <= FREE).all() and (saved > 0).any()), bool((regret > FREE).all())
    return Outcome(answer_of(free, costly), numbers)


def _shape(run: Run, statistic: str) -> dict[str, pd.Series]:
    """Return a statistic of the loss surface on the plane that tells checkpoints apart best, by model."""
    names = run["features"].query("source == 'landscape'")["feature"].unique()
    planes = {
        name.removeprefix(f"{statistic}_").rpartition("_")[0]: name
        for name in sorted(names, reverse=True)
        if name.startswith(f"{statistic}_") and not name.endswith("_spread") and "_closed_" not in name
    }
    planes = {plane: name for plane, name in planes.items() if plane not in ("ball", "bowl")}
    return _courses(run, "landscape", planes[most_informative(planes)]) if planes else {}


NO_LANDSCAPE = "no loss surface was measured at enough checkpoints (landscape.enabled)"


def _saddles_fall(run: Run) -> Outcome:
    courses = {model: course for model, course in _shape(run, "n_saddles").items() if len(course) > 1}
    if courses and not any(course.any() for course in courses.values()):
        return not_tested("no surface of this run has a saddle")
    change = pd.Series({model: course.iloc[-1] - course.iloc[0] for model, course in courses.items()}, dtype=float)
    return _one_sign(run, change, -1, absent=NO_LANDSCAPE)


def _not_monotonic(run: Run) -> Outcome:
    changes = [np.diff(course) for course in _shape(run, "average_persistence").values() if len(course) > 2]
    if not changes:
        return not_tested(NO_LANDSCAPE)
    turns = [bool((change > 0).any() and (change < 0).any()) for change in changes]
    return Outcome(answer_of(all(turns), not any(turns)), f"rises and falls in {sum(turns)} of {len(turns)} models")


def _complexity(run: Run) -> Outcome:
    last = {model: course.iloc[-1] for model, course in _shape(run, "n_saddles").items()}
    return _over_sizes(run, pd.Series(last, dtype=float), 1) if last else not_tested(NO_LANDSCAPE)


def _more_dimensions(run: Run) -> Outcome:
    ball, bowl = (_courses(run, "landscape", f"n_saddles_{shape}_aknn8") for shape in ("ball", "bowl"))
    excess = pd.Series({model: (course - bowl[model]).mean() for model, course in ball.items()}, dtype=float)
    if excess.empty:
        return not_tested("planes alone were sampled (landscape.ball_points samples a ball of six random directions)")
    numbers = f"saddles in a ball of six random directions less those of the bowl: {_listed(_by_size(run, excess))}"
    return not_tested("random directions are no subspace of the Hessian", numbers)


SIGN = "Spearman of at least 0.5 in size with this sign in every model; drift alone can cause it"
EVERY = "the same sign in every model"
TREND = "Spearman of the sizes' means with size, p of at most 0.05"
INTERVAL = "95% interval (Student's t) of the exponent b of a N^b"
_report = partial(_follows, source="embeddings")

CLAIMS = (
    Claim(PLAN, "H1", "Neural persistence rises monotonically in training.", "it never falls, in every model", _monotonic),
    Claim(
        PLAN, "H1, efficiency", "The rate of neural persistence goes with the loss gained a step, after detrending.",
        "correlation of prewhitened residuals given the norm, all runs together", _efficiency,
    ),
    Claim(
        PLAN, "H2", "The transition of neural persistence coincides with the diminishing returns of the loss.",
        "at most one checkpoint apart in every model", _coincide,
    ),
    Claim(PLAN, "H3", "Topological features scale with size.", f"{INTERVAL}, away from 0 for each feature", _all_scale),
    Claim(
        PLAN, "H4", "Topology improves the forecast of the final loss.",
        "signed-rank test against the best forecast without topology, Holm; at least 10 configurations", _improves,
    ),
    Claim(
        PLAN, "criterion 1", "One topological feature has p below 0.05 with the loss in every size.",
        "p of Spearman as if checkpoints were independent, as published, which drift passes too", _one_feature,
    ),
    Claim(
        PLAN, "criterion 2", "The courses of models of different size differ.",
        "Kruskal-Wallis over sizes; seeds are replicates", _different_courses,
    ),
    Claim(
        PLAN, "criterion 3", "The forecast with topology is better for at least 3 of 5 sizes.",
        "count of models against the power law, at every share of training", _most_forecasts,
    ),
    Claim(
        PAPER, "table 1", "The final validation loss falls with size.", TREND,
        lambda run: _over_sizes(run, _final_loss(run), -1), "validation_loss",
    ),
    Claim(
        PAPER, "table 2", "H0 total persistence rises as the loss falls.", SIGN,
        partial(_follows, feature="h0_total", sign=-1), "spearman h0_total training_loss",
    ),
    Claim(
        PAPER, "table 2, sizes", "H0 total persistence follows the loss more closely in larger models.", TREND,
        partial(_follows_more_in_larger, feature="h0_total", sign=-1), "spearman h0_total training_loss",
    ),
    Claim(
        PAPER, "table 3", "The correlation of neural persistence with the loss has no one sign.",
        "both signs among the models", partial(_both_signs, feature="neural_persistence"),
        "spearman neural_persistence training_loss",
    ),
    Claim(
        PAPER, "table 4", "The correlation of H1 total persistence with the loss weakens with size.", TREND,
        partial(_follows_more_in_larger, feature="h1_total", sign=1), "spearman h1_total training_loss",
    ),
    Claim(
        PAPER, "table 5", "Topology combined with a power law is worse than it at 20% of training, better at 30 and 50%.",
        "sign of the error saved, mean over models; too few for a test", _forecast_signs,
    ),
    Claim(
        PAPER, "table 6", "Neural persistence changes most early in training, of 5,000 steps.",
        f"within the first {EARLY:.0%} in every model", _early, "step of max |delta neural_persistence|",
    ),
    Claim(
        PAPER, "table 7, loss", "The final validation loss falls with size by a power law.", INTERVAL,
        partial(_scales, source=METRIC_SOURCE, feature="validation_loss", sign=-1), "exponent validation_loss in N",
    ),
    Claim(
        PAPER, "table 7, H0", "H0 total persistence rises with size by a power law.", INTERVAL,
        partial(_scales, source="weights", feature="h0_total", sign=1), "exponent h0_total in N",
    ),
    Claim(
        PAPER, "table 7, neural persistence", "Neural persistence does not scale with size.",
        f"{INTERVAL}, which holds 0", partial(_scales, source="weights", feature="neural_persistence", sign=0),
        "exponent neural_persistence in N",
    ),
    Claim(
        PAPER, "table 8", "Neural persistence of Pythia 14M rises in training.", SIGN,
        partial(_of_pythia, feature="neural_persistence", sign=1), "neural_persistence mean over layers",
    ),
    Claim(
        PAPER, "table 8, H0", "H0 total persistence of Pythia 14M falls in training.", SIGN,
        partial(_of_pythia, feature="h0_total", sign=-1), "h0_total",
    ),
    Claim(
        PAPER, "parts of a block", "Neural persistence differs between attention and feed-forward matrices.",
        f"attention less feed-forward, means at the last checkpoint: {EVERY}", _parts_differ,
    ),
    Claim(
        EMBEDDINGS, "entropy", "H1 entropy of the embeddings falls with the perplexity.", SIGN,
        partial(_report, feature="h1_entropy", sign=1), "|spearman| h1_entropy perplexity",
    ),
    Claim(
        EMBEDDINGS, "loops", "The number of H1 bars falls with the perplexity.", SIGN,
        partial(_report, feature="h1_count", sign=1), "|spearman| h1_count perplexity",
    ),
    Claim(
        EMBEDDINGS, "longest loop", "The longest H1 bar grows as the perplexity falls.", SIGN,
        partial(_report, feature="h1_max", sign=-1), "|spearman| h1_max perplexity",
    ),
    Claim(
        EMBEDDINGS, "spectral baseline", "The effective rank falls with the perplexity.", SIGN,
        partial(_report, feature="effective_rank", sign=1), "|spearman| effective_rank perplexity",
    ),
    Claim(
        EMBEDDINGS, "topology and spectra", "Topology follows the perplexity more closely than spectra do.",
        f"mean |Spearman| of four features of H1 less that of three of the spectrum: {EVERY}", _above_spectra,
    ),
    Claim(
        EMBEDDINGS, "phases", "H1 total persistence of the embeddings first falls, then rises.",
        "its least value lies between the first and the last checkpoint in every model", _two_phases,
    ),
    Claim(
        EMBEDDINGS, "stopping", "Stopping by topology saves compute and costs nothing.",
        f"patience 2 on neural persistence: steps saved, and at most {FREE} nats lost, in every model", _stopping,
    ),
    Claim(LANDSCAPES, "H1", "Saddles become fewer in training.", f"last less first checkpoint: {EVERY}", _saddles_fall),
    Claim(
        LANDSCAPES, "H2", "The average persistence of the loss surface is not monotonic in training.",
        "rises and falls in every model", _not_monotonic,
    ),
    Claim(LANDSCAPES, "H3", "The landscape of larger models has more saddles.", TREND, _complexity),
    Claim(
        LANDSCAPES, "H4", "Subspaces of the Hessian of 3 to 10 dimensions show saddles that a plane does not.",
        "saddles in a ball less those of a quadratic bowl at the same points", _more_dimensions,
    ),
)  # fmt: skip
"""Every claim, in the order of its source."""


def _final_loss(run: Run) -> pd.Series:
    last = final_values(run["features"].iloc[:0], run["metrics"])
    return last[last["feature"] == LOSSES[1]].set_index("model")["value"]
