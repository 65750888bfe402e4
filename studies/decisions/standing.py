"""Where published runs stand against the published scaling law, by source, and how often a wrong batch is seen.

The scatter of `PublishedLaw` is compared with that of the other sources: the root mean squares of their mean differences,
and of the differences of their runs from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.special import ndtr

from toposcale.forecasting.decision.decision_points import MIN_ROWS, SHARES
from toposcale.forecasting.decision.on_track import Reference, Track, tracks_of
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.laws.priors import YOUNG_TOKENS
from toposcale.forecasting.runs.checks import MIN_WARMUPS
from toposcale.forecasting.runs.published_run import PublishedRun
from toposcale.forecasting.runs.training_run import TrainingRun

MIN_STEPS = 800
"""Steps, and `YOUNG_TOKENS` tokens, that a run of usual scale has seen."""

WRONG_BATCHES = {"outside_x8": 8.0, "outside_x1/8": 1 / 8, "outside_x40": 40.0, "outside_x1/40": 1 / 40}
"""Factors by which the tokens of a step are stated wrongly."""

WEB, OTHER_TEXTS = "web", {"olmo-ladder-stack": "code", "zli12-tinystories": "stories"}
"""Texts of families that are no web text; the scatter of the others is that of web texts."""

USUAL, YOUNGER = "usual", "young"
KEY = ["scale", "text", "source"]


def standing_points(runs: Sequence[PublishedRun]) -> pd.DataFrame:
    """A row for each decision point of runs of pretraining: `KEY`, off (nats above the law), inside, `WRONG_BATCHES`."""
    return pd.DataFrame(row for run in runs if not run.kind for row in _rows(run))


def _rows(run: PublishedRun) -> Iterator[dict[str, object]]:
    for share in SHARES:
        now = run.first(share)
        is_early = now.progress.step < MIN_WARMUPS * now.schedule.warmup_steps
        track = _track(now)
        if len(now.loss_curve.steps) < MIN_ROWS or is_early or track is None:
            continue
        is_usual = track.step >= MIN_STEPS and track.step * now.tokens_per_step >= YOUNG_TOKENS
        row: dict[str, object] = {"scale": USUAL if is_usual else YOUNGER, "source": run.source}
        row["text"] = OTHER_TEXTS.get(run.family, WEB)
        row |= {"off": track.loss - track.expected, "inside": track.is_on_track}
        for name, factor in WRONG_BATCHES.items():
            wrong = _track(now, factor)
            row[name] = wrong is not None and not wrong.is_on_track
            row[f"power, {name}"] = _power(track, wrong) if wrong else np.nan
        yield row


def _power(track: Track, wrong: Track) -> float:
    """How often a wrong batch lies outside where runs scatter as the interval says: what its width allows."""
    shift = (track.expected - wrong.expected) * NORMAL / (wrong.high - wrong.expected)
    return float(ndtr(shift - NORMAL) + ndtr(-shift - NORMAL))


def _track(now: TrainingRun, factor: float = 1.0) -> Track | None:
    """The comparison with published runs, with a factor on the tokens of a step; None: there is none."""
    facts = replace(now.facts, tokens_per_step=factor * now.tokens_per_step)
    tracks = tracks_of(replace(now, facts=facts))
    return next((track for track in tracks if track.reference is Reference.PUBLISHED), None)


def standing_table(points: pd.DataFrame) -> pd.DataFrame:
    """A row for each scale, text and source: the number of points, means of the other columns, and for web texts at the
    usual scale level_scatter, run_scatter and inside_left_out, those of the other sources and the share inside them.

    The rows `all` are means over points, and those over `sources` means over the sources of web text.
    """
    table = points.groupby(KEY).mean().join(points.groupby(KEY).size().rename("n")).reset_index()
    usual = points[(points["scale"] == USUAL) & (points["text"] == WEB)]
    left_out = pd.DataFrame(_left_out(usual, source) for source in sorted(usual["source"].unique()))
    table = table.merge(left_out, on=KEY, how="left")
    means = []
    for scale, rows in points.groupby("scale"):
        web = table[(table["scale"] == scale) & (table["text"] == WEB)]
        row = {"scale": scale, "text": WEB, "source": "sources", "n": web["n"].sum()}
        means.append(row | web.drop(columns=[*KEY, "n"]).mean().to_dict())
        row = {"scale": scale, "text": "all", "source": "all", "n": len(rows)}
        means.append(row | rows.drop(columns=KEY).mean().to_dict())
    return pd.concat([table, pd.DataFrame(means)], ignore_index=True)


def _left_out(usual: pd.DataFrame, source: str) -> dict[str, object]:
    """The scatter of the sources but one, and the share of its points inside."""
    is_out = usual["source"] == source
    others = usual[~is_out].groupby("source")["off"]
    level, run = (float(np.sqrt(np.mean(values**2))) for values in (others.mean(), others.std(ddof=0)))
    inside = usual.loc[is_out, "off"].abs() <= NORMAL * np.hypot(level, run)
    key = dict(zip(KEY, (USUAL, WEB, source), strict=True))
    return {**key, "level_scatter": level, "run_scatter": run, "inside_left_out": float(inside.mean())}
