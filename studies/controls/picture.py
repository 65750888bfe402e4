"""The two figures of docs/research.md: `PYTHONPATH=workflow python -m studies.controls.picture TABLES IMAGES`.

They are drawn from the committed tables. The module also writes `finding.csv`, the scores of H0 among surrogates of the
runs of study 4.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies import small_tables
from studies.controls.replication import SECOND
from studies.controls.scale import SHARES, TRAINED_HERE
from studies.controls.study_4 import STUDY_4, runs_of_study_4
from studies.study4.configurations import SCORE
from toposcale.figures import panels
from toposcale.figures.style import styled
from toposcale.forecasting import pictures

DARK, PINK, ORANGE, GREEN, GREY = "#0b2f6b", "#b0347a", "#e08e0b", "#3a7d44", "#777777"
TESTS = {
    "score of h0 among surrogates": ("score among surrogates", "o", PINK),
    "h0 beyond the nuclear norm": ("H0 given the nuclear norm", "s", DARK),
    "h0 beyond surrogates": ("H0 given its surrogates", "D", GREEN),
}
FRESH_RUNS = {
    "tiny-3k-fifth": "3K, rate 0.003",
    "small-7k-fifth": "7K, rate 0.003",
    "tiny-3k-wikitext-fifth": "3K on WikiText-2",
}


def finding(models: pd.DataFrame) -> pd.DataFrame:
    """Return for each setting the scores of H0 among surrogates: mean, deviation, the highest."""
    scores = models.groupby("configuration")[SCORE]
    return scores.agg(runs="size", mean_score="mean", sd="std", highest_score="max").reset_index()


@styled
def scores(models: pd.DataFrame, sizes: pd.DataFrame) -> Figure:
    """Scores of H0 among surrogates: of the runs of study 4, and of token embeddings by size."""
    figure = panels.new_figure(3.2, "")
    left, right = figure.subplots(1, 2)
    groups = list(models.groupby("configuration"))
    for place, (_, runs) in enumerate(groups):
        parts = left.violinplot(runs[SCORE], [place], orientation="horizontal", widths=0.9, showextrema=True)
        for body in parts["bodies"]:
            body.set_facecolor(DARK)
        for line in ("cbars", "cmins", "cmaxes"):
            parts[line].set(color=DARK, linewidth=0.8)
    left.axvline(0, color=GREY, linewidth=0.8)
    panels.name_rows(left, [_words(str(name)) for name, _ in groups])
    left.set_xlabel("mean score of the matrices of a run")
    for trained, colour in zip((*SHARES, TRAINED_HERE), (ORANGE, PINK, DARK), strict=True):
        own = sizes[sizes["trained"] == trained]
        right.plot(own["n_parameters"], own["token_embedding"], "o", color=colour, label=f"token embedding, {trained}")
    right.plot(sizes["n_parameters"], sizes["rotated_token_embedding"], "x", color=GREY, label="the same, rotated")
    right.axhline(0, color=GREY, linewidth=0.8)
    right.set_xscale("log")
    right.set_xlabel("parameters")
    right.set_ylabel("score")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _words(configuration: str) -> str:
    size, rate, decay = configuration.replace("-fourth", "").split(".", 1)[0], *_rate_and_decay(configuration)
    return f"{size}, rate {rate}, decay {decay}"


def _rate_and_decay(configuration: str) -> tuple[str, str]:
    rate, decay = configuration.split(".lr")[1].split(".wd")
    return rate, decay


@styled
def power_and_effects(planted: pd.DataFrame, effects: pd.DataFrame) -> Figure:
    """The power of the tests of study 4 for topology that is planted, and the effects that were measured."""
    figure = panels.new_figure(3.4, "")
    left, right = figure.subplots(1, 2)
    _power(left, planted)
    _effects(right, effects)
    figure.legend(loc="outside upper left", ncols=3)
    return figure


def _power(axes: Axes, planted: pd.DataFrame) -> None:
    own = planted[(planted["part"] == "no spectral effect") & (planted["group"] == "rate 0.003")]
    for test, (words, marker, colour) in TESTS.items():
        rows = own[(own["test"] == test) & (own["statistic"] == "mean")].sort_values("effect")
        bars = rows["found"] - rows["low"], rows["high"] - rows["found"]
        axes.errorbar(rows["effect"], rows["found"], bars, marker=marker, markersize=4, color=colour, label=words)
    axes.axhline(0.05, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xlabel("planted correlation of topology beyond the spectrum")
    axes.set_ylabel("share of simulations in which it is found")


def _effects(axes: Axes, effects: pd.DataFrame) -> None:
    rows = effects.iloc[::-1].reset_index(drop=True)
    panels.draw_intervals(axes, rows.index, rows["estimate"], rows["low"], rows["high"], color=DARK, marker="o")
    axes.plot(rows["detectable"], rows.index, "|", color=ORANGE, markersize=10)
    axes.plot(-rows["detectable"], rows.index, "|", color=ORANGE, markersize=10)
    axes.axvline(0, color=GREY, linewidth=0.8)
    panels.name_rows(axes, list(rows["effect"]))
    axes.set_xlabel("correlation with the loss, 95% interval")


def effect_rows(folder: Path) -> Iterator[dict[str, object]]:
    """Yield the effects of topology that the page compares: estimate, interval, and what is found in 80%."""
    primary = pd.read_csv(STUDY_4 / "primary.csv")
    means = primary[primary["statistic"] == "mean"]
    for question in ("h0 beyond surrogates", "h0 beyond the nuclear norm"):
        for row in means[means["question"] == question].to_dict("records"):
            words = question.replace("h0", "H0").replace("beyond", "given")
            yield _effect(f"{words}, rate {row['rate']:g}", row)
    replicated = pd.read_csv(folder / "replicated.csv").query("question == 'h0 beyond the nuclear norm'")
    for row in replicated[replicated["sample"] == SECOND].to_dict("records"):
        yield _effect(f"the same, {FRESH_RUNS[row['entry']]}, {row['runs']} fresh runs", row)
    seeds = pd.read_csv(folder / "seeds.csv")
    for row in seeds[seeds["feature"].isin(["h0_total", "h0_mean"])].to_dict("records"):
        given = "norm and spectrum" if row["control"].endswith("spectrum") else "norm"
        yield _effect(f"{row['feature']} given {given}, eight seeds", row)


def _effect(words: str, row: Mapping[Any, Any]) -> dict[str, object]:
    return {"effect": words} | {name: row[name] for name in ("estimate", "low", "high", "detectable")}


def main(folder: Path, images: Path) -> None:
    """Write finding.csv, effects.csv and the figures."""
    models = runs_of_study_4()
    small_tables.write(finding(models), folder / "finding.csv")
    effects = pd.DataFrame(effect_rows(folder))
    small_tables.write(effects, folder / "effects.csv")
    pictures.write(scores(models, pd.read_csv(folder / "sizes.csv")), images / "research-scores.svg")
    pictures.write(power_and_effects(pd.read_csv(folder / "planted.csv"), effects), images / "research-power.svg")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
