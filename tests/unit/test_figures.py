"""Figures: what is drawn is what the tables hold, and everybody can read it."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
import warnings
import xml.dom.minidom
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import figure_tables
from toposcale.features.names import sentence
from toposcale.features.roles import network_order
from toposcale.figures import FIGURES, load, statistics
from toposcale.figures.layers import row_name
from toposcale.figures.panels import spans_decades
from toposcale.figures.style import STYLE, model_appearances, save
from toposcale.figures.training import smooth
from toposcale.io import schemas

# One worker for all of them: they share the tables that are drawn.
pytestmark = pytest.mark.xdist_group("figures")

GOLDEN = Path(__file__).parent / "golden"
DRAWABLE = list(FIGURES)

overview, loss_curves = load("overview"), load("loss_curves")
scaling, verdict = load("scaling"), load("verdict")
forecast_comparison, forecast_fans = load("forecast_comparison"), load("forecast_fans")
decision_candidates = load("decision_candidates")


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, pd.DataFrame]]:
    """The tables of three runs, by the source of their features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up series are constant here and there, and the statistics say so
        weights = figure_tables.all_tables()
        return {
            "metrics": weights,
            "weights": weights,
            "embeddings": figure_tables.embedding_tables(),
            "landscape": figure_tables.landscape_tables(),
        }


@pytest.fixture(scope="module")
def run(tables: dict[str, dict[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """The tables of the run whose weights were looked at."""
    return tables["weights"]


def draw(name: str, tables: dict[str, dict[str, pd.DataFrame]]) -> Figure:
    """The figure `name` from the tables it asks for."""
    entry = FIGURES[name]
    return load(name)(**{table: tables[entry.source][table] for table in entry.tables})


def over_training(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """The grid of features over training, of a table whose features pass for those of embeddings."""
    return load("embeddings_over_training")(features=features.assign(source="embeddings"), models=models)


def layer_heat_map(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """The grid of features by layer."""
    return load("layer_heat_map")(features=features, models=models)


def words(figure: Figure) -> str:
    """All text of a figure."""
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def plain(correlations: pd.DataFrame) -> pd.DataFrame:
    """The correlations with nothing held fixed."""
    return correlations[correlations["control"] == "nothing"]


def lines_of(axes: matplotlib.axes.Axes) -> dict[str, matplotlib.lines.Line2D]:
    """Lines of a panel by the model in their label."""
    return {line.get_label(): line for line in axes.get_lines() if line.get_label() in figure_tables.SIZES}


# Every figure


@pytest.fixture(scope="module")
def drawn(tables: dict[str, dict[str, pd.DataFrame]]) -> Callable[[str], Figure]:
    """Every figure, drawn once."""
    return functools.cache(lambda name: draw(name, tables))


@pytest.mark.parametrize("name", DRAWABLE)
def test_every_figure_is_drawn_from_the_tables_it_names(name, drawn):
    entry = FIGURES[name]
    positional = [
        parameter.name
        for parameter in inspect.signature(load(name)).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    assert positional == list(entry.tables)
    figure = drawn(name)
    marks = sum(len(axes.lines) + len(axes.collections) + len(axes.images) + len(axes.patches) for axes in figure.axes)
    assert marks > 0
    assert [line for line in words(figure).splitlines() if line.lower().startswith("no ")] == []


@pytest.mark.parametrize("name", DRAWABLE)
def test_empty_tables_give_a_figure_that_says_what_is_missing(name, tables):
    entry = FIGURES[name]
    whole = {table: tables[entry.source][table] for table in entry.tables}
    empty = {table: rows if table == "models" else rows.iloc[:0] for table, rows in whole.items()}
    lines = [line for line in words(load(name)(**empty)).splitlines() if line.lower().startswith("no ")]
    assert lines


def with_odd_names(table: pd.DataFrame, models: set[str]) -> pd.DataFrame:
    """The table with models and layers whose names matplotlib takes for mathematics that it cannot read."""
    odd = table.copy()
    if "model" in odd:
        odd["model"] = odd["model"].where(~odd["model"].isin(models), odd["model"] + ODD)
    if "layer" in odd:  # of a landscape, the layers are planes
        named = (odd["layer"] != schemas.ALL_LAYERS) & (odd.get("source", "landscape") != "landscape")
        odd["layer"] = odd["layer"].where(~named, odd["layer"] + ODD)
    return odd


ODD = r"a$\frac{$"


@pytest.mark.parametrize("name", DRAWABLE)
def test_names_are_drawn_as_they_are(name, tables):
    entry = FIGURES[name]
    of_source = tables[entry.source]
    models = set(of_source["models"]["model"])
    odd = {table: with_odd_names(of_source[table], models) for table in entry.tables}
    with matplotlib.style.context(["default", STYLE]):
        FigureCanvasAgg(load(name)(**odd)).draw()


def test_control_characters_in_the_name_of_a_layer_are_drawn_as_escapes(run, tmp_path):
    layers = run["features"]["layer"].replace(r"^(?!all$)", "\x1b[2J\x07", regex=True)
    figure = layer_heat_map(run["features"].assign(layer=layers), run["models"])
    save(figure, tmp_path / "figure.svg")
    assert r"\x1b[2J\x07" in words(figure)
    xml.dom.minidom.parse(str(tmp_path / "figure.svg"))


@pytest.mark.parametrize("name", DRAWABLE)
def test_axes_have_labels_with_units_and_nothing_is_cut_or_overlaps(name, drawn):
    figure = drawn(name)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = []
    for axes in figure.axes:
        shown = [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title]
        boxes += [(text.get_text(), text.get_window_extent(renderer)) for text in shown if text.get_text()]
        for axis in (axes.xaxis, axes.yaxis):
            label = axis.label.get_text()
            countable = label.startswith(("training step", "branches"))
            assert not label or countable or "(" in label, label
    boxes += [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts if text.get_text()]
    boxes += [("legend", legend.get_window_extent(renderer)) for legend in figure.legends]
    width, height = canvas.get_width_height()
    for text, box in boxes:
        assert box.x0 >= -1, f"cut at the left: {text}"
        assert box.y0 >= -1, f"cut at the bottom: {text}"
        assert box.x1 <= width + 1, f"cut at the right: {text}"
        assert box.y1 <= height + 1, f"cut at the top: {text}"
    for (one, first), (other, second) in combinations(boxes, 2):
        assert not first.overlaps(second), f"{one!r} lies on {other!r}"


def test_the_registry_imports_nothing_heavy():
    code = "import sys, toposcale.figures; print([m for m in ('matplotlib', 'pandas', 'numpy') if m in sys.modules])"
    assert run_python(code) == "[]"


def test_drawing_imports_neither_pyplot_nor_torch_nor_seaborn():
    modules = sorted({entry.module for entry in FIGURES.values()} - {"landscape"})
    imports = "; ".join(f"import toposcale.figures.{module}" for module in modules)
    code = f"{imports}; import sys; print([m for m in ('matplotlib.pyplot', 'torch', 'seaborn') if m in sys.modules])"
    assert run_python(code) == "[]"


def run_python(code: str) -> str:
    """What a fresh interpreter prints."""
    source = str(Path(inspect.getfile(load)).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


# Appearance of models


def luminance(colour: str) -> float:
    """Rec. 709 luminance: what is left of a colour in grey."""
    return float(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)))


def test_larger_models_are_darker_and_have_their_own_marker():
    looks = model_appearances(figure_tables.models_table())
    assert list(looks) == list(figure_tables.SIZES)
    greys = [luminance(look.color) for look in looks.values()]
    assert all(lighter - darker > 0.03 for lighter, darker in pairwise(greys))
    assert len({look.marker for look in looks.values()}) == len(looks)


@pytest.mark.parametrize("family", ["model", "gpt"])
def test_seeds_share_the_colour_and_differ_in_line_style(family):
    models = figure_tables.models_table(seeds=(42, 43, 44))
    if family == "gpt":
        models = models.assign(family="gpt")
    looks = model_appearances(models)
    copies = [looks["xl-97k"], looks["xl-97k.seed43"], looks["xl-97k.seed44"]]
    assert len({look.color for look in copies}) == 1
    assert len({str(look.linestyle) for look in copies}) == 3
    assert len({look.color for look in looks.values()}) == 5
    assert looks["xl-97k"] == model_appearances(figure_tables.models_table())["xl-97k"]


def test_models_of_unknown_size_come_last():
    models = figure_tables.models_table()
    unknown = models.iloc[[0, 0]].assign(model=["gguf", "gguf-2"], n_parameters=float("nan"))
    looks = model_appearances(pd.concat([unknown, models]))
    assert list(looks)[-2:] == ["gguf", "gguf-2"]
    assert [name for name in looks if name in set(models["model"])] == list(model_appearances(models))


def test_a_model_looks_the_same_in_every_figure_and_in_a_subset(run):
    expected = {name: look.color for name, look in model_appearances(run["models"]).items()}
    few = run["features"][run["features"]["model"].isin(["med-21k", "xl-97k"])]
    panels = [
        *overview(run["metrics"], run["features"], run["correlations"], run["models"]).axes[:5],
        *over_training(run["features"], run["models"]).axes,
        *over_training(few, run["models"]).axes,
        loss_curves(run["training"], run["metrics"], run["models"]).axes[0],
    ]
    for axes in panels:
        drawn = lines_of(axes)
        assert drawn
        assert all(line.get_color() == expected[model] for model, line in drawn.items())


def test_models_without_a_row_in_the_models_table_are_drawn_in_grey(run):
    listed = run["models"][run["models"]["model"] != "tiny-3k"]
    lines = lines_of(over_training(run["features"], listed).axes[0])
    red, green, blue = to_rgb(lines["tiny-3k"].get_color())
    assert red == green == blue


# What is drawn is what the tables hold


def test_lines_hold_the_values_of_the_table(run):
    axes = overview(run["metrics"], run["features"], run["correlations"], run["models"]).axes[3]
    rows = run["features"]
    rows = rows[(rows["feature"] == "h0_total") & (rows["layer"] == "all") & (rows["model"] == "med-21k")]
    line = lines_of(axes)["med-21k"]
    np.testing.assert_array_equal(line.get_xdata(), rows["step"])
    np.testing.assert_array_equal(line.get_ydata(), rows["value"])


def test_the_overview_sets_topology_beside_the_norm(run):
    axes = overview(run["metrics"], run["features"], run["correlations"], run["models"]).axes[-1]
    table = plain(run["correlations"])
    table = table[(table["metric"] == "validation_loss") & (table["layer"] == "all")]
    points = {line.get_marker(): sorted(line.get_xdata()) for line in axes.get_lines() if len(line.get_xdata()) == 5}
    for marker, feature in (("o", "h0_total"), ("X", "frobenius_norm"), ("s", "neural_persistence")):
        np.testing.assert_array_equal(points[marker], sorted(table.loc[table["feature"] == feature, "spearman"]))


def test_the_overview_has_a_panel_of_what_is_known_alone(run):
    no_loss = run["metrics"][:0], run["features"], run["correlations"][:0], run["models"]
    titles = [axes.get_title(loc="left") for axes in overview(*no_loss).axes if axes.get_title(loc="left")]
    assert [title.partition("  ")[0] for title in titles] == list("abcd")
    assert not any("loss" in title.lower() for title in titles)
    norms = run["features"][run["features"]["feature"] == "frobenius_norm"]
    assert [
        axes.get_title(loc="left")
        for axes in overview(no_loss[0], norms, *no_loss[2:]).axes
        if axes.get_title(loc="left")
    ] == ["a  Weight norm"]
    first = run["features"][run["features"]["step"] == run["features"]["step"].min()]
    assert overview(no_loss[0], first, *no_loss[2:]).get_label() == "at least two checkpoints are needed"


def test_without_a_log_the_losses_of_the_checkpoints_are_drawn(run):
    saved = run["metrics"][run["metrics"]["metric"] == "validation_loss"].assign(metric="training_loss")
    for sign, scale in ((1, "log"), (-1, "linear")):
        figure = loss_curves(run["training"][:0], saved.assign(value=sign * saved["value"]), run["models"])
        assert figure.axes[0].get_yscale() == scale
        drawn = lines_of(figure.axes[0])["med-21k"].get_ydata()
        expected = saved[saved["model"] == "med-21k"].sort_values("step")["value"]
        np.testing.assert_array_equal(drawn, sign * expected)


def test_values_that_are_not_finite_leave_a_gap_and_are_counted(run):
    features = run["features"].copy()
    chosen = features.index[
        (features["feature"] == "h0_total") & (features["layer"] == "all") & (features["model"] == "xl-97k")
    ]
    features.loc[chosen[3], "value"] = np.nan
    features.loc[chosen[7], "value"] = np.inf
    figure = over_training(features, run["models"])
    drawn = lines_of(figure.axes[0])["xl-97k"].get_ydata()
    assert np.flatnonzero(np.isnan(drawn)).tolist() == [3, 7]
    assert "2 values not finite" in words(figure)
    assert "not finite" not in words(over_training(run["features"], run["models"]))


def test_a_model_with_nothing_but_nan_is_not_in_the_legend(run):
    features = run["features"].copy()
    features.loc[features["model"] == "tiny-3k", "value"] = np.nan
    figure = over_training(features, run["models"])
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == list(figure_tables.SIZES)[1:]
    panels = len(figure.axes)  # each draws one feature of that model
    assert f"{panels * len(figure_tables.CHECKPOINTS)} values not finite" in words(figure)


def test_steps_that_span_decades_get_a_logarithmic_axis_with_step_0(run, tables):
    assert not spans_decades(figure_tables.CHECKPOINTS)
    assert spans_decades(figure_tables.LOG_STEPS)
    logarithmic = figure_tables.features_table(figure_tables.LOG_STEPS)
    axes = over_training(logarithmic, run["models"]).axes[0]
    assert axes.get_xscale() == "symlog"
    assert axes.get_xlim()[0] <= 0
    assert axes.get_xticks()[0] == 0
    without = logarithmic[logarithmic["step"] > 0]
    assert over_training(without, run["models"]).axes[0].get_xscale() == "log"
    assert over_training(run["features"], run["models"]).axes[0].get_xscale() == "linear"


def test_running_median_by_hand_and_nan_is_not_hidden():
    steps = np.arange(300)
    values = np.ones(300)
    values[100] = 50.0  # a spike: the median of three ignores it
    values[200] = np.nan
    training = pd.DataFrame({"model": "a", "step": steps, "loss": values})
    smoothed, window = smooth(training)
    assert window == 3
    assert smoothed["value"].to_numpy()[100] == 1.0
    assert np.flatnonzero(np.isnan(smoothed["value"])).tolist() == [200]


def test_what_is_not_known_of_a_training_has_neither_a_panel_nor_a_legend_entry(run):
    tables = run["metrics"], run["models"]
    whole = loss_curves(run["training"], *tables)
    assert len(whole.axes) == 2
    assert "training" in words(whole)
    assert "learning rate" in words(whole)
    without_rate = loss_curves(run["training"].assign(learning_rate=np.nan), *tables)
    assert len(without_rate.axes) == 1
    assert without_rate.axes[0].get_xlabel() == whole.axes[1].get_xlabel()
    assert "learning rate" not in words(without_rate)
    validation = run["metrics"][run["metrics"]["metric"] == "validation_loss"], run["models"]
    without_log = loss_curves(run["training"][:0], *validation)
    keys = [text.get_text() for legend in without_log.legends for text in legend.texts]
    assert "validation" in keys
    assert not any(key.startswith("training") for key in keys)
    no_validation = loss_curves(run["training"], run["metrics"][:0], run["models"])
    assert "validation" not in [text.get_text() for legend in no_validation.legends for text in legend.texts]


def test_the_caption_of_the_verdict_names_what_is_drawn():
    assert "given the norm of the weights, and given the norm and the spectrum." in FIGURES["verdict"].caption
    assert "training step" not in FIGURES["verdict"].caption


def test_the_verdict_keeps_the_norm_in_sight_and_answers_in_words(run, monkeypatch):
    tables = run["verdicts"], run["pooled_correlations"]
    monkeypatch.setattr(statistics, "MAX_VERDICTS", 4)
    assert "weight norm" in words(verdict(*tables))
    monkeypatch.setattr(statistics, "MAX_VERDICTS", 100)
    left, right = verdict(*tables).axes
    pooled = statistics.pooled_verdicts(tables[0], "validation_loss")
    drawn = ["follows_the_loss", "beyond_the_norm", "beyond_the_spectrum"]
    asked = pooled[pooled["question"].isin(drawn)]
    answers = [text.get_text().replace("\n", " ") for text in right.texts]
    for answer in ("yes", "no", "not tested"):
        assert answers.count(answer) == (asked["answer"] == answer).sum()
    assert answers.count("not tested") > 0
    whole = tables[1].query("metric == 'validation_loss' and layer == 'all'")
    for control in ("nothing", "weight_norm", "weight_norm_and_spectrum"):
        expected = np.sort(whole.loc[whole["control"] == control, "spearman"])
        drawn = [np.sort(line.get_xdata()) for line in left.get_lines()]
        assert any(np.array_equal(points, expected, equal_nan=True) for points in drawn)


def test_scaling_draws_the_law_of_the_table(run):
    axes = scaling(run["features"], run["metrics"], run["scaling"], run["models"]).axes[0]
    law = run["scaling"]
    law = law[(law["feature"] == "validation_loss") & (law["law"] == "power_law")].iloc[0]
    line = next(line for line in axes.get_lines() if len(line.get_xdata()) == 50)
    expected = law["coefficient"] * line.get_xdata() ** law["exponent"]
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12)
    assert f"{law['r_squared']:.3f}" in words(axes.figure)


def test_no_marker_of_the_scaling_touches_the_words_of_its_law(run, tmp_path):
    """Also where the largest model lies far below the law that rises, and the smallest below one that falls."""
    features, metrics = run["features"].copy(), run["metrics"].copy()
    features.loc[features["model"] == "xl-97k", "value"] *= 0.3
    metrics.loc[metrics["model"] == "tiny-3k", "value"] *= 0.5
    figure = scaling(features, metrics, run["scaling"], run["models"])
    figure.savefig(tmp_path / "scaling.png")
    for axes in figure.axes:
        words_of_law = axes.texts[0].get_window_extent()
        for line in axes.get_lines():
            radius = line.get_markersize() / 2 * figure.dpi / 72 if line.get_marker() != "None" else 0
            for x, y in axes.transData.transform(line.get_xydata()):
                across = max(words_of_law.x0 - x, 0, x - words_of_law.x1)
                along = max(words_of_law.y0 - y, 0, y - words_of_law.y1)
                assert np.hypot(across, along) > radius


def test_forecasts_are_ordered_by_their_error(run):
    axes = forecast_comparison(run["forecast_evaluation"]).axes[0]
    table = run["forecast_evaluation"]
    best_last = table.groupby("method")["mae"].mean().sort_values(ascending=False).index
    assert [label.get_text().replace(" ", "_") for label in axes.get_yticklabels()] == list(best_last)
    drawn = sorted(x for line in axes.get_lines() for x in line.get_xdata())
    np.testing.assert_array_equal(drawn, sorted(table["mae"].dropna()))


def test_a_method_without_a_score_is_named(run):
    table = run["forecast_evaluation"].copy()
    table.loc[table["method"] == "combined", "mae"] = np.nan
    assert "No score for: combined" in words(forecast_comparison(table))


def test_the_training_loss_stands_in_where_no_validation_loss_was_measured(run):
    metrics = run["metrics"][run["metrics"]["metric"] == "training_loss"]
    figure = forecast_fans(run["forecasts"], metrics, run["models"], run["schedules"])
    drawn = {axes.get_title("left"): axes.lines[0].get_ydata() for axes in figure.axes if "loss" in axes.get_ylabel()}
    for model in run["models"]["model"]:
        expected = metrics.loc[(metrics["model"] == model) & (metrics["step"] > 0), "value"]
        np.testing.assert_array_equal(drawn[model], expected)


def test_a_fan_ends_at_the_interval_and_the_plan_stands_beneath(run):
    forecasts = run["forecasts"].replace({"method": {"power_law": "joint"}})
    figure = forecast_fans(forecasts, run["metrics"], run["models"], run["schedules"])
    row = forecasts.query("method == 'joint' and fraction == 0.2 and model == 'tiny-3k'").iloc[0]
    assert {row["low"], row["high"]} <= ends_of_fans(figure, "tiny-3k")
    rates = [
        line.get_ydata().max()
        for axes in figure.axes
        for line in axes.get_lines()
        if axes.get_ylabel() == "rate\n(per step)"
    ]
    assert rates == pytest.approx([3e-3] * len(run["models"]))
    assert "schedule not known" in words(
        forecast_fans(run["forecasts"], run["metrics"], run["models"], run["schedules"][:0])
    )


def test_the_power_law_is_drawn_without_an_interval(run):
    figure = forecast_fans(run["forecasts"], run["metrics"], run["models"], run["schedules"])
    rows = run["forecasts"].query("method == 'power_law' and fraction > 0 and model == 'tiny-3k'")
    [panel] = [axes for axes in figure.axes if axes.get_title("left") == "tiny-3k"]
    assert {line.get_ydata()[1] for line in panel.lines if len(line.get_ydata()) == 2} == set(rows["forecast"].dropna())
    assert not ends_of_fans(figure, "tiny-3k")


def ends_of_fans(figure, model):
    panel = next(axes for axes in figure.axes if axes.get_title("left") == model)
    return {float(loss) for patch in panel.patches for loss in patch.get_xy()[1:3, 1]}


def test_every_candidate_of_a_decision_is_drawn_with_its_interval(run):
    figure = decision_candidates(run["candidates"], run["models"])
    drawn = sorted(x for axes in figure.axes for dots in axes.collections[1:] for x in dots.get_offsets()[:, 0])
    np.testing.assert_allclose(drawn, sorted(run["candidates"]["loss"].dropna()))
    assert len(drawn) > 3
    assert "nothing" not in words(figure)
    assert "no run has anything to decide" in words(decision_candidates(run["candidates"][:0], run["models"]))


def test_candidates_of_runs_under_way_are_drawn_alone(run):
    """Those of finished runs only where no run is under way, and then as finished."""
    row = run["candidates"].iloc[0].to_dict() | {"model": "tiny-3k", "fraction": 0.5}
    live = [row | {"is_live": True, "candidate": name} for name in ("continue", "scale up to big")]
    over = [row | {"is_live": False, "model": "xl-97k"}]
    text = words(decision_candidates(pd.DataFrame([*live, *over]), run["models"]))
    assert "tiny-3k at 50%" in text
    assert "xl-97k" not in text
    assert "finished since" not in text
    unknown = row | {"is_live": True, "candidate": "unknown", "loss": np.nan}
    assert "unknown" not in words(decision_candidates(pd.DataFrame([*live, unknown]), run["models"]))
    assert "xl-97k at 50% (finished since)" in words(decision_candidates(pd.DataFrame(over), run["models"]))


def test_a_title_begins_in_upper_case_but_for_a_symbol():
    assert [sentence(text) for text in ("effective rank", "α-ReQ exponent", "")] == [
        "Effective rank",
        "α-ReQ exponent",
        "",
    ]


def test_layers_stand_in_the_order_of_the_network():
    shuffled = [
        "blocks.10.attention.qkv.weight",
        "head.weight",
        "blocks.2.feed_forward.expansion.weight",
        "token_embedding.weight",
        "blocks.2.attention.qkv.weight",
    ]
    assert [row_name(layer) for layer in sorted(shuffled, key=network_order)] == [
        "token_embedding",
        "2.attention.qkv",
        "2.feed_forward.expansion",
        "10.attention.qkv",
        "head",
    ]


def test_a_figure_of_one_model_takes_the_largest(run):
    text = words(layer_heat_map(run["features"], run["models"]))
    assert "xl-97k" in text
    smaller = run["features"][run["features"]["model"] != "xl-97k"]
    assert "large-46k" in words(layer_heat_map(smaller, run["models"]))


def test_each_layer_has_the_colours_of_its_own_change(run):
    """The embedding has eight times the norm of the others, which triple while it stays."""
    features = run["features"]
    steps = features["step"] / features["step"].max()
    is_embedding = features["layer"] == "token_embedding.weight"
    norms = features.assign(value=np.where(is_embedding, 24.0, 1 + 2 * steps))
    planted = pd.concat(
        [norms[norms["feature"] == "frobenius_norm"], features[features["feature"] != "frobenius_norm"]]
    )
    panels = layer_heat_map(planted, run["models"]).axes
    [cells] = next(axes.collections for axes in panels if "weight norm" in axes.get_title(loc="left"))
    ratios = cells.get_array().reshape(-1, features["step"].nunique())
    np.testing.assert_allclose(ratios[:, 0], 1)
    np.testing.assert_allclose(ratios[0], 1)  # the embedding is the input, at the top
    np.testing.assert_allclose(ratios[1:, -1], 3)
    np.testing.assert_allclose(cells.norm([1 / 3, 1.0, 3.0]), [0, 0.5, 1], atol=1e-12)


def test_a_figure_of_one_checkpoint_takes_the_last(tables):
    landscape = tables["landscape"]
    draw_surfaces = load("surface_and_merge_tree")
    assert "xl-97k, step 1000" in words(draw_surfaces(landscape["surfaces"], landscape["models"]))
    earlier = landscape["surfaces"].query("step < 1000")
    assert "xl-97k, step 0" in words(draw_surfaces(earlier, landscape["models"]))


def test_a_merge_tree_has_room_for_its_basins(tables):
    """The planted surface rises to 6.2, and its basins meet below 1.6."""
    landscape = tables["landscape"]
    figure = load("surface_and_merge_tree")(landscape["surfaces"], landscape["models"])
    trees = [axes for axes in figure.axes if axes.get_xlabel() == "branches of the tree"]
    minima, saddles = (line.get_ydata() for line in trees[0].lines)
    low, high = trees[0].get_ylim()
    assert saddles.max() - minima.min() > (high - low) / 2
    assert low < minima.min() < saddles.max() < high


# Files


def test_the_same_tables_give_the_same_bytes_whatever_the_users_style(run, tmp_path):
    save(layer_heat_map(run["features"], run["models"]), tmp_path / "first.svg")
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "axes.facecolor": "red"}):
        save(layer_heat_map(run["features"], run["models"]), tmp_path / "second.svg")
    for suffix in ("svg", "png"):
        assert (tmp_path / f"first.{suffix}").read_bytes() == (tmp_path / f"second.{suffix}").read_bytes()
    svg = (tmp_path / "first.svg").read_bytes()
    assert b"<dc:date>" not in svg
    assert b"<text" not in svg  # letters are outlines: no font is needed


def test_two_files_take_two_drawings(tmp_path, monkeypatch):
    figure = Figure(dpi=80, layout="constrained")
    figure.add_subplot().plot([1, 2])
    draw, drawings = Figure.draw, []
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: drawings.append(draw(self, renderer)))
    save(figure, tmp_path / "drawn.svg")
    assert len(drawings) == 2  # the PNG and the SVG; the layout is found by itself


def test_save_keeps_dots_in_names_and_leaves_nothing_half_written(run, tmp_path):
    figure = forecast_comparison(run["forecast_evaluation"])
    save(figure, tmp_path / "deeper" / "heat.med-21k.seed43.svg")
    written = sorted(path.name for path in (tmp_path / "deeper").iterdir())
    assert written == ["heat.med-21k.seed43.png", "heat.med-21k.seed43.svg"]


# Golden images: small, grey and without words, so that they hold on any build of the font renderer

GOLDEN_FIGURES = ("overview", "verdict", "forecast_comparison")
TOLERANCE = 0.002
"""Mean difference in grey level (0 to 1). Other hinting of the letters changes nothing; leaving any one model out of
the overview changes at least four times this (tested below)."""


def picture(figure: Figure) -> np.ndarray:
    """The figure's marks in grey at 40 dots an inch, values 0 to 1."""
    for legend in list(figure.legends):
        legend.remove()
    for text in figure.findobj(Text):
        text.set_visible(False)
    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(40)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] @ np.array([0.2126, 0.7152, 0.0722]) / 255


def golden(name: str) -> np.ndarray:
    """The stored picture, values 0 to 1."""
    return np.asarray(Image.open(GOLDEN / f"{name}.png")) / 255


@pytest.mark.parametrize("name", GOLDEN_FIGURES)
def test_golden_images(name, tables):
    now = picture(draw(name, tables))
    if os.environ.get("TOPOSCALE_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        Image.fromarray(np.rint(now * 255).astype(np.uint8)).save(GOLDEN / f"{name}.png", optimize=True)
    assert golden(name).shape == now.shape
    assert np.abs(golden(name) - now).mean() < TOLERANCE


@pytest.mark.parametrize("model", figure_tables.SIZES)
def test_the_golden_tolerance_would_notice_a_missing_model(run, model):
    few = {name: run[name][run[name]["model"] != model] for name in ("metrics", "features", "correlations")}
    now = picture(overview(**few, models=run["models"]))
    assert np.abs(golden("overview") - now).mean() > 4 * TOLERANCE
