"""Claims of the four sources, and whether a run reproduces them.

`CLAIMS` is the registry; a new claim is one entry.
"""

from collections.abc import Callable, Collection
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis import answers
from toposcale.analysis.controls import FOLLOWS_RHO, LEVEL, NOTHING, YES
from toposcale.analysis.series import MIN_FOR_CORRELATION
from toposcale.analysis.verdicts import POOLED
from toposcale.features.feature import WEIGHT_NORM
from toposcale.features.registry import group_of
from toposcale.features.roles import Role, role_of
from toposcale.io import schemas
from toposcale.io.schemas import METRIC_SOURCE
from toposcale.landscape.plane_names import SUBSPACES
from toposcale.reproduction.run_values import LOSSES, RunValues
from toposcale.statistics.coefficients import MAX_PERMUTED, correlation_p_value, permutation_p_value, spearman

PLAN = "research_plan"
PAPER = "paper"
EMBEDDINGS = "embedding_report"
LANDSCAPES = "landscape_review"
MIN_SIZES = 5
"""Fewest sizes for which Spearman's correlation can have an exact p of at most 0.05."""
MAX_LISTED = 6
"""Most models whose values are listed singly."""
EARLY = 0.1
"""Share of training within which a transition is early."""
FREE = 0.01
"""Largest regret of stopping that counts as free, nats."""
NP = "neural_persistence"
H0 = "h0_total"
H1 = "h1_total"
REPORTED = ("h1_entropy", "h1_count", "h1_max", H1, "effective_rank", "participation_ratio", "eigenspectrum_decay")
"""Features that the embedding report compares with the perplexity."""
NO_EMBEDDINGS = "no embeddings at enough checkpoints"
NO_LANDSCAPE = "no loss surface at enough checkpoints (landscape.enabled)"
NO_PYTHIA = "pythia-14m is not in this run (config/pythia-14m.yaml)"


class ClaimAnswer(StrEnum):
    """Answer of a run to a claim; opposite: the contrary claim passes the same test."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    OPPOSITE = "opposite"
    NOT_TESTED = "not tested"


class NotTested(Exception):
    """Raised with the reason why a run cannot test a claim, and numbers that are shown all the same."""


class Outcome(NamedTuple):
    """Outcome of the test of a claim: whether it and its contrary pass, and the numbers behind that."""

    holds: Any
    contrary: Any
    numbers: str

    @property
    def answer(self) -> ClaimAnswer:
        """Answer of the run to the claim."""
        if self.holds:
            return ClaimAnswer.REPRODUCED
        return ClaimAnswer.OPPOSITE if self.contrary else ClaimAnswer.NOT_REPRODUCED


def require(measured: Any, reason: str, numbers: str = "") -> None:
    """Raise NotTested unless the values that a test needs are measured."""
    if not measured:
        raise NotTested(reason, numbers)


def values_text(values: Any) -> str:
    """Return the values by model as text, or their median and range if there are many."""
    values = pd.Series(values)
    if len(values) <= MAX_LISTED:
        return ", ".join(f"{name} {value:.3g}" for name, value in values.items())
    return f"median {values.median():.3g} ({value_range(values)}) over {len(values)} models"


def value_range(values: pd.Series) -> str:
    """Return the range of the values as text."""
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


def all_or_none(passes: Any, fails: Any, numbers: str, absent: str = "not measured") -> Outcome:
    """Return whether all models pass a test, or all fail it; `absent` is the reason if there are none."""
    require(len(passes), absent)
    return Outcome(all(passes), all(fails), numbers)


def have_one_sign(values: pd.Series, sign: int, least: float = 0.0, absent: str = "not measured") -> Outcome:
    """Return whether the values of all models have this sign and an absolute value of at least `least`."""
    holds, contrary = ((side * values >= least) & (side * values > 0) for side in (sign, -sign))
    return all_or_none(holds, contrary, values_text(values), absent)


def over_sizes(run: RunValues, values: pd.Series, sign: int) -> Outcome:
    """Return whether a value rises (sign 1) or falls with size; the models of a size are averaged first."""
    means = values.groupby(run.sizes.reindex(values.index)).mean()
    n_sizes = len(means)
    reason = f"{MIN_SIZES} sizes are needed for a p of {LEVEL}, but {n_sizes} have a value"
    require(n_sizes >= MIN_SIZES, reason, values_text(values))
    rho, is_exact = spearman(means.index, means).item(), n_sizes <= MAX_PERMUTED
    p_value = permutation_p_value(np.arange(n_sizes), means.rank()) if is_exact else correlation_p_value(rho, n_sizes)
    p = p_value.item()
    numbers = f"Spearman with size {rho:.2f}, p = {p:.2g}; {values_text(values)}"
    return Outcome(p <= LEVEL and sign * rho > 0, p <= LEVEL and sign * rho < 0, numbers)


def follows(run: RunValues, feature: str, sign: int, source: str = "weights") -> Outcome:
    """Return whether a feature follows the loss or perplexity with this sign."""
    return have_one_sign(run.correlations(feature, source), sign, FOLLOWS_RHO)


def has_both_signs(run: RunValues) -> Outcome:
    """Return whether the correlation of neural persistence with the loss has both signs."""
    rho = run.correlations(NP)
    require(len(rho) > 1, "needs two models")
    return Outcome(rho.min() < 0 < rho.max(), False, values_text(rho))


def is_monotonic(run: RunValues) -> Outcome:
    """Return whether neural persistence never falls."""
    by_model, rho = run.series(NP, least=3), run.with_step(NP)
    rises = run.by_size({model: (np.diff(values) > 0).mean() for model, values in by_model.items()})
    numbers = (
        f"share of increases between checkpoints: {values_text(rises)}; Spearman with the step: {values_text(rho)}"
    )
    falls = rho <= -FOLLOWS_RHO if len(rho) else [False]
    return all_or_none(rises == 1, falls, numbers, "needs three checkpoints")


def is_efficient(run: RunValues) -> Outcome:
    """Return whether the answer to beyond_the_norm, on detrended series, is a negative correlation with the loss."""
    rows = run.rows("verdicts", model=POOLED, question="beyond_the_norm", feature=NP)
    power = run.rows("sensitivity", question="beyond_the_norm")
    tested = rows[rows["metric"].isin(LOSSES)].dropna(subset=["p"]).sort_values("metric")
    require(len(tested), next(filter(None, [*rows["reason"], *power["reason"]]), "not measured"))
    row, limit = tested.iloc[-1], "".join(f"; {answers.power_sentence(value)}" for value in power["detectable"])
    numbers = f"correlation with the {row['metric']} {row['estimate']:.2f}, p = {row['p']:.2g}{limit}"
    is_significant = row["p"] <= LEVEL
    has_power = is_significant or (power["found"] == YES).any()
    require(has_power, "the test does not detect the loss itself (positive control)", numbers)
    return Outcome(is_significant and row["estimate"] < 0, is_significant and row["estimate"] > 0, numbers)


def coincides(run: RunValues) -> Outcome:
    """Return whether neural persistence changes most when the loss settles."""
    apart = run.transitions(NP, "transition_step") - run.transitions(LOSSES[1], "settled_step", METRIC_SOURCE)
    apart, by_model = run.by_size(apart), run.series(NP)
    near = [abs(steps) <= np.diff(by_model[str(model)].index).max() for model, steps in apart.items()]
    return all_or_none(near, [False], f"steps apart: {values_text(apart)}", "no model has both steps")


def is_early(run: RunValues) -> Outcome:
    """Return whether neural persistence changes most in the first part of training."""
    final = run.tables["models"].set_index("model")["final_step"].astype(float)
    shares = run.by_size(run.transitions(NP, "transition_step") / final)
    return all_or_none(shares <= EARLY, [False], f"share of training: {values_text(shares)}", "no transition is known")


def scales(run: RunValues, sign: int | None, *series: str, source: str = "weights") -> Outcome:
    """Return whether all exponents in size have this sign (0: no scaling; None: any sign but 0)."""
    laws = {name: law for name in series if (law := run.law(name, source)) is not None}
    require(len(laws) == len(series), "no exponent in size has an interval: it needs three sizes")
    signs = [1 if law["exponent_low"] > 0 else -1 if law["exponent_high"] < 0 else 0 for law in laws.values()]
    numbers = ", ".join(
        f"{name} {law['exponent']:.3f} ({law['exponent_low']:.3f} to {law['exponent_high']:.3f})"
        for name, law in laws.items()
    )
    holds = all(signs) if sign is None else set(signs) == {sign}
    return Outcome(holds, sign and set(signs) == {-sign}, f"exponents: {numbers}")


def improves(run: RunValues) -> Outcome:
    """Return whether topology improves the forecasts."""
    verdict, text, numbers = answers.answer_topological_forecast(run.tables["forecast_evaluation"])
    require(verdict in (answers.IMPROVES, answers.WORSENS, answers.NOT_SHOWN), text, numbers)
    return Outcome(verdict == answers.IMPROVES, verdict == answers.WORSENS, numbers)


def improves_late(run: RunValues) -> Outcome:
    """Return whether the combined forecast is worse at 20% of training, and better at 30 and 50%."""
    reductions = run.rows("forecast_evaluation", method="combined").set_index("fraction")["over_power_law_percent"]
    reductions = reductions.reindex([0.2, 0.3, 0.5]).dropna()
    require(len(reductions) == 3, "no forecasts at 20, 30 and 50% of training")
    right = (reductions > 0) == (reductions.index > 0.2)
    numbers = "reduction of the error: " + ", ".join(f"{value:+.0f}% at {at:.0%}" for at, value in reductions.items())
    return Outcome(right.all(), not right.any(), numbers)


def improves_most(run: RunValues) -> Outcome:
    """Return whether the combined forecast is better for at least three models in five."""
    rows = run.tables["forecasts"].dropna(subset=["error"]).set_index(["fraction", "model", "method"])
    errors = rows["error"].abs().unstack().reindex(columns=["combined", "power_law"]).dropna()
    better = (errors["combined"] < errors["power_law"]).groupby("fraction").agg(["sum", "size"])
    require((better["size"] >= MIN_SIZES).any(), f"fewer than {MIN_SIZES} finished models have both forecasts")
    numbers = "better in " + ", ".join(f"{won} of {n} at {share:.0%}" for share, won, n in better.itertuples())
    shares = better["sum"] / better["size"]
    return Outcome((shares >= 0.6).all(), (shares <= 0.4).all(), numbers)


def is_in_every_size(run: RunValues) -> Outcome:
    """Return whether a topological feature has a small p in every model."""
    plain = run.rows("correlations", control=NOTHING).dropna(subset=["spearman_p"])
    groups = plain[plain["metric"].isin(LOSSES)].groupby(["source", "feature", "metric"])["spearman_p"]
    passed = groups.max()[groups.size() == run.tables["models"]["model"].nunique()] < LEVEL
    require(len(passed) and groups.size().max() > 1, "needs correlations of two models")
    features = set(passed[passed].index.get_level_values("feature"))
    topological = [name for name in features if group_of(name) == "topology"]
    valid = run.rows("tested_features", question="beyond_the_norm")[["found", "tested"]].sum()
    norm = "too" if WEIGHT_NORM.feature in features else "does not"
    numbers = f"{len(topological)} topological features, and the norm {norm}; by the test given the norm, whose "
    numbers += f"false-positive rate is measured, {valid['found']} of {valid['tested']}"
    return Outcome(topological, False, numbers)


def trajectories_differ(run: RunValues) -> Outcome:
    """Return whether trajectories of neural persistence differ more between sizes than between seeds."""
    from scipy.stats import kruskal

    rho = run.with_step(NP)
    groups = [of_size.to_numpy() for _, of_size in rho.groupby(run.sizes.reindex(rho.index))]
    numbers = f"Spearman of neural persistence with the step: {values_text(rho)}"
    is_replicated = len(groups) > 1 and min(map(len, groups)) > 2
    require(is_replicated, "size and seed are confounded: needs three seeds of each of two sizes", numbers)
    p = float(kruskal(*groups).pvalue)
    return Outcome(p <= LEVEL, False, f"p = {p:.2g}; {numbers}")


def rises_in_pythia(run: RunValues, feature: str, sign: int) -> Outcome:
    """Return whether a feature of Pythia 14M rises (sign 1) or falls in training."""
    return have_one_sign(run.with_step(feature).filter(["pythia-14m"]), sign, FOLLOWS_RHO, NO_PYTHIA)


def parts_differ(run: RunValues) -> Outcome:
    """Return whether attention and feed-forward matrices differ with one sign."""
    rows = run.tables["features"].query("source == 'weights' and feature == @NP")
    rows = rows[rows["step"] == rows.groupby("model")["step"].transform("max")]
    means = rows.groupby(["model", rows["layer"].map(role_of)])["value"].mean().unstack()
    apart = run.by_size(means.get(Role.ATTENTION, np.nan) - means.get(Role.FEED_FORWARD, pd.Series(dtype=float)))
    require(len(apart), "no such matrices")
    return Outcome(len(signs := set(np.sign(apart))) == 1 and 0 not in signs, False, values_text(apart))


def beats_spectra(run: RunValues) -> Outcome:
    """Return whether the features of H1 follow the perplexity more closely than those of the spectrum."""
    rho = pd.DataFrame({name: run.correlations(name, "embeddings").abs() for name in REPORTED})
    apart = rho[list(REPORTED[:4])].mean(axis=1) - rho[list(REPORTED[4:])].mean(axis=1)
    return have_one_sign(run.by_size(apart), 1, absent=NO_EMBEDDINGS)


def has_interior_minimum(run: RunValues) -> Outcome:
    """Return whether H1 of the embeddings has its minimum strictly between the first and the last checkpoint."""
    by_model = run.series(H1, "embeddings", MIN_FOR_CORRELATION)
    least = run.by_size({model: values.idxmin() for model, values in by_model.items()})
    inside = np.array([of.index[0] < least[model] < of.index[-1] for model, of in by_model.items()], dtype=bool)
    return all_or_none(inside, ~inside, f"step of the minimum: {values_text(least)}", NO_EMBEDDINGS)


def stopping_is_free(run: RunValues) -> Outcome:
    """Return whether early stopping by neural persistence saves steps and costs nothing."""
    rows = run.rows("early_stopping", feature=NP, patience=2).set_index("model").astype({"steps_saved": float})
    saved, regret = run.by_size(rows["steps_saved"]), run.by_size(rows["regret"])
    numbers = f"steps saved: {values_text(saved)}; nats lost: {values_text(regret)}"
    return all_or_none((regret <= FREE) & bool((saved > 0).any()), regret > FREE, numbers, "no validation loss")


def saddles_fall(run: RunValues) -> Outcome:
    """Return whether there are fewer saddles at the last checkpoint than at the first."""
    by_model = run.surfaces("n_saddles", 2)
    require(not by_model or any(values.any() for values in by_model.values()), "no surface has a saddle")
    change = {model: values.iloc[-1] - values.iloc[0] for model, values in by_model.items()}
    return have_one_sign(run.by_size(change), -1, absent=NO_LANDSCAPE)


def is_not_monotonic(run: RunValues) -> Outcome:
    """Return whether the average persistence of the loss surface both rises and falls."""
    signs = [set(np.sign(np.diff(values))) for values in run.surfaces("average_persistence", 3).values()]
    turns = np.array([{-1, 1} <= of_model for of_model in signs], dtype=bool)
    return all_or_none(turns, ~turns, f"it rises and falls in {turns.sum()} of {len(turns)} models", NO_LANDSCAPE)


def saddles_in_larger(run: RunValues) -> Outcome:
    """Return whether larger models have more saddles."""
    last = run.by_size({model: values.iloc[-1] for model, values in run.surfaces("n_saddles", 1).items()})
    require(len(last), NO_LANDSCAPE)
    return over_sizes(run, last, 1)


def more_dimensions(run: RunValues) -> Outcome:
    """Return whether the loss has more saddles beyond its quadratic model in 3 to 10 dimensions than in two."""

    def saddles(kind: str) -> pd.DataFrame:
        measured = {k: run.series(f"n_saddles_{kind}_{k}_aknn8", "landscape") for k in range(2, 11)}
        means = {
            k: pd.Series({model: of.mean() for model, of in series.items()}) for k, series in measured.items() if series
        }
        return pd.DataFrame(means)

    loss, quadratic = map(saddles, SUBSPACES)
    excess = loss - quadratic
    has_both = 2 in excess and len(excess.columns) > 1
    require(has_both, "no subspaces of the Hessian of two and of more dimensions are measured (landscape.subspaces)")
    beyond = run.by_size(excess.drop(columns=2).mean(axis=1) - excess[2])
    counts = ", ".join(f"{k}: {loss[k].mean():.3g} ({quadratic[k].mean():.3g})" for k in loss)
    numbers = f"{values_text(beyond)}; saddles (of the quadratic model) by dimension {counts}"
    return Outcome((beyond > 0).all(), False, numbers)


class Claim(NamedTuple):
    """A claim: its source, its name there, the statement, its test in words, and the function of a run that tests it."""

    source: str
    name: str
    statement: str
    test: str
    check: Callable[[RunValues], Outcome]
    published: str = ""  # the quantity whose published range is shown with the statement


SIGN = "|Spearman| of at least 0.5 with this sign in every model; drift alone can cause it"
EVERY = "one sign in every model"
TREND = "Spearman of the sizes' means with size, p of at most 0.05"
INTERVAL = "95% interval (Student's t) of the exponent of the size"
# fmt: off
CLAIMS = (
    Claim(PLAN, "H1", "Neural persistence rises monotonically in training.", "it never falls in any model", is_monotonic),
    Claim(PLAN, "H1, efficiency", "The change of neural persistence correlates with the decrease of the loss, detrended.",
          "prewhitened residuals given the norm, all runs together", is_efficient),
    Claim(PLAN, "H2", "The transition of neural persistence coincides with the diminishing returns of the loss.",
          "at most one checkpoint apart in every model", coincides),
    Claim(PLAN, "H3", "Topological features scale with size.", f"{INTERVAL} excludes 0 for each",
          lambda run: scales(run, None, NP, H0, H1)),
    Claim(PLAN, "H4", "Topology improves the forecast of the final loss.",
          "signed-rank test against the best forecast without topology, Holm; at least 10 configurations", improves),
    Claim(PLAN, "criterion 1", "One topological feature has p below 0.05 with the loss in every size.",
          "Spearman's p as if checkpoints were independent, as published; drift passes it, too", is_in_every_size),
    Claim(PLAN, "criterion 2", "Models of different size have different trajectories.",
          "Kruskal-Wallis test over sizes; seeds are replicates", trajectories_differ),
    Claim(PLAN, "criterion 3", "The forecast with topology is better for at least 3 of 5 sizes.",
          "count of models, against the power law, at every share of training", improves_most),
    Claim(PAPER, "table 1", "The final validation loss falls with size.", TREND,
          lambda run: over_sizes(run, run.final_losses(), -1), "validation_loss"),
    Claim(PAPER, "table 2", "H0 total persistence rises as the loss falls.", SIGN,
          partial(follows, feature=H0, sign=-1), f"spearman {H0} training_loss"),
    Claim(PAPER, "table 2, sizes", "H0 total persistence follows the loss more closely in larger models.", TREND,
          lambda run: over_sizes(run, run.correlations(H0), -1), f"spearman {H0} training_loss"),
    Claim(PAPER, "table 3", "The sign of the correlation of neural persistence with the loss varies between models.",
          "both signs among the models", has_both_signs, f"spearman {NP} training_loss"),
    Claim(PAPER, "table 4", "The correlation of H1 total persistence with the loss weakens with size.", TREND,
          lambda run: over_sizes(run, run.correlations(H1), 1), f"spearman {H1} training_loss"),
    Claim(PAPER, "table 5", "Topology worsens the forecast of a power law at 20% of training, improves it at 30 and 50%.",
          "sign of the mean reduction of the error; too few models for a test", improves_late),
    Claim(PAPER, "table 6", "Neural persistence changes most early in training, of 5,000 steps.",
          f"within the first {EARLY:.0%} in every model", is_early, f"step of max |delta {NP}|"),
    Claim(PAPER, "table 7, loss", "The final validation loss falls with size by a power law.", INTERVAL,
          lambda run: scales(run, -1, LOSSES[1], source=METRIC_SOURCE), "exponent validation_loss in N"),
    Claim(PAPER, "table 7, H0", "H0 total persistence rises with size by a power law.", INTERVAL,
          lambda run: scales(run, 1, H0), f"exponent {H0} in N"),
    Claim(PAPER, "table 7, neural persistence", "Neural persistence does not scale with size.", f"{INTERVAL} contains 0",
          lambda run: scales(run, 0, NP), f"exponent {NP} in N"),
    Claim(PAPER, "table 8", "Neural persistence of Pythia 14M rises in training.", SIGN,
          partial(rises_in_pythia, feature=NP, sign=1), f"{NP} mean over layers"),
    Claim(PAPER, "table 8, H0", "H0 total persistence of Pythia 14M falls in training.", SIGN,
          partial(rises_in_pythia, feature=H0, sign=-1), H0),
    Claim(PAPER, "parts of a block", "Neural persistence differs between attention and feed-forward matrices.",
          f"difference of their means at the last checkpoint: {EVERY}", parts_differ),
    Claim(EMBEDDINGS, "entropy", "H1 entropy of the embeddings falls with the perplexity.", SIGN,
          partial(follows, feature="h1_entropy", sign=1, source="embeddings"), "|spearman| h1_entropy perplexity"),
    Claim(EMBEDDINGS, "loops", "The number of H1 bars falls with the perplexity.", SIGN,
          partial(follows, feature="h1_count", sign=1, source="embeddings"), "|spearman| h1_count perplexity"),
    Claim(EMBEDDINGS, "longest loop", "The longest H1 bar grows as the perplexity falls.", SIGN,
          partial(follows, feature="h1_max", sign=-1, source="embeddings"), "|spearman| h1_max perplexity"),
    Claim(EMBEDDINGS, "spectral baseline", "The effective rank falls with the perplexity.", SIGN,
          partial(follows, feature="effective_rank", sign=1, source="embeddings"), "|spearman| effective_rank perplexity"),
    Claim(EMBEDDINGS, "topology and spectra", "Topology follows the perplexity more closely than spectra do.",
          f"mean |Spearman| of four features of H1 minus that of three of the spectrum: {EVERY}", beats_spectra),
    Claim(EMBEDDINGS, "phases", "H1 total persistence of the embeddings first falls, then rises.",
          "its minimum lies between the first and the last checkpoint in every model", has_interior_minimum),
    Claim(EMBEDDINGS, "stopping", "Stopping by topology saves compute and costs nothing.",
          f"patience 2 on neural persistence: steps saved, and at most {FREE} nats lost, in every model", stopping_is_free),
    Claim(LANDSCAPES, "H1", "Saddles become fewer in training.", f"last minus first checkpoint: {EVERY}", saddles_fall),
    Claim(LANDSCAPES, "H2", "The average persistence of the loss surface is not monotonic in training.",
          "it rises and falls in every model", is_not_monotonic),
    Claim(LANDSCAPES, "H3", "The landscape of larger models has more saddles.", TREND, saddles_in_larger),
    Claim(LANDSCAPES, "H4", "Subspaces of the Hessian of 3 to 10 dimensions show saddles that a plane does not.",
          "saddles minus those of the quadratic model, in 3 to 10 dimensions minus in two: positive in every model",
          more_dimensions),
)
# fmt: on
"""Every claim, in the order of its source."""


def claims_tables(
    *, published: pd.DataFrame, reproduces: Collection[str], **tables: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Make the table claims: a row for each of `CLAIMS` whose source is one of `reproduces`."""
    rows, run = [], RunValues(tables)
    for position, claim in enumerate(CLAIMS, 1):
        if claim.source not in reproduces:
            continue
        row = {"position": position, "source": claim.source.replace("_", " "), "claim": claim.name, "test": claim.test}
        of_claim = published.loc[published["quantity"] == claim.published, "value"].astype(str)
        values = of_claim.str.lstrip("<").astype(float)
        row["statement"] = claim.statement + (f" Published: {value_range(values)}." if len(values) else "")
        try:
            outcome = claim.check(run)
            row |= {"answer": str(outcome.answer), "numbers": outcome.numbers, "reason": ""}
        except NotTested as error:
            reason, numbers = error.args
            row |= {"answer": str(ClaimAnswer.NOT_TESTED), "numbers": numbers, "reason": reason}
        rows.append(row)
    return {"claims": schemas.TABLES["claims"].frame(rows)}
