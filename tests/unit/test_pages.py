"""What the pages are made of, without a browser; tests/browser opens them."""

import base64
import json
import re
import shutil

import numpy as np
import pandas as pd
import plotly.offline
import pytest
from markupsafe import Markup
from matplotlib.colors import to_rgb
from safetensors.numpy import save_file

import figure_tables
import report as report_script
import toposcale
from page_data import held, rows_of
from paths import ROOT
from toposcale.analysis import user_tables
from toposcale.analysis.answers import POWERLESS, UNTESTED, WHICH_ADD
from toposcale.analysis.own_run import run_answers
from toposcale.analysis.series import with_metrics
from toposcale.figures import FIGURES, load, style
from toposcale.forecasting.logs import loss_curves
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import schemas
from toposcale.landscape.plane_names import most_informative
from toposcale.monitor import records
from toposcale.monitor.alerts import Alert, AlertKind
from toposcale.monitor.folder import Folder
from toposcale.pages import cards, chart_data, explorer, provenance, report, watch

BASE = ROOT / "src/toposcale/pages/base.css"
ENTRY = FIGURES["embeddings_over_training"]._replace(title="A <title>")


def leave_cost(path, seconds, memory=120.5):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"wall_seconds": seconds, "cpu_seconds": seconds / 2, "peak_memory_mb": memory}))


def test_runtimes_are_added_up_by_rule_and_model(tmp_path):
    leave_cost(tmp_path / "train" / "one" / "step-00000000.cost.json", 2.0)
    leave_cost(tmp_path / "train" / "one" / "step-00000040.cost.json", 3.0, memory=130.0)
    leave_cost(tmp_path / "train" / "one.seed43" / "all.cost.json", 7.0)
    leave_cost(tmp_path / "diagram_distances" / "weights" / "one.cost.json", 0.2)
    leave_cost(tmp_path / "summary.cost.json", 0.5)
    table = provenance.runtimes(tmp_path, ["weights", "one", "one.seed43"]).set_index(["rule", "model"])
    train = table.loc[("train", "one")]
    assert (train["jobs"], train["wall_seconds"], train["longest_job_seconds"]) == (2, 5.0, 3.0)
    assert (train["cpu_seconds"], train["peak_memory_mb"]) == (2.5, 130.0)
    assert table.loc[("train", "one.seed43"), "wall_seconds"] == 7.0
    assert table.loc[("diagram_distances", "one"), "jobs"] == 1
    assert table.loc[("summary", ""), "wall_seconds"] == 0.5


def test_no_costs_are_an_empty_table(tmp_path):
    assert provenance.runtimes(tmp_path, []).empty


def test_rerun_names_every_revision_and_changed_files():
    stored = {"revision": "a" * 40, "versions": json.dumps({"numpy": "2.4"})}
    tables = {
        "features": stored,
        "metrics": stored,
        "summary": {"revision": "b" * 40 + "-dirty", "versions": json.dumps({"numpy": "2.5", "scipy": "1"})},
    }
    facts = provenance.rerun(tables, run="mine", lock_name="requirements.lock", lock_hash="0" * 64)
    assert facts["commands"].splitlines()[:2] == ["git checkout " + "a" * 40, "make run CONFIG=mine.yaml"]
    assert facts["revisions"] == [("a" * 40, "features, metrics"), ("b" * 40 + "-dirty", "summary")]
    assert facts["changed"]
    assert facts["versions"] == [("numpy", "2.4 and 2.5"), ("scipy", "1")]
    assert not provenance.rerun({"features": stored}, run="mine", lock_name="x", lock_hash="0")["changed"]
    installed = provenance.rerun({"features": {}}, run="mine", lock_name="x.lock", lock_hash="0")
    assert installed["commands"].startswith("toposcale run mine.yaml   # of toposcale ")


def test_a_run_is_exact_only_of_one_clean_revision():
    def provenance_of(*revisions, patch=""):
        tables = {str(i): {"revision": one} for i, one in enumerate(revisions)}
        return provenance.rerun(tables, run="mine", lock_name="x", lock_hash="0", patch=patch)

    assert provenance_of("a" * 40)["exact"]
    assert not provenance_of("a" * 40, "b" * 40)["exact"]
    assert not provenance_of("unknown")["exact"]
    dirty = provenance_of("a" * 40 + "-dirty", patch="results/mine/changes.patch")
    assert not dirty["exact"]
    assert dirty["patch"] == "changes.patch"
    assert dirty["commands"].splitlines()[:2] == ["git checkout " + "a" * 40, "git apply results/mine/changes.patch"]


@pytest.mark.parametrize(
    ("value", "text", "key"),
    [
        (1234567, "1,234,567", "1234567.0"),
        (np.float64(0.123456), "0.123", "0.123456"),
        (500.0, "500", "500.0"),
        (12345.6, "12,346", "12345.6"),
        (-0.0000012, "-1.2e-06", "-1.2e-06"),
        (np.nan, "", ""),
        (pd.NA, "", ""),
        (None, "", ""),
        (np.inf, "inf", "inf"),
        (True, "yes", "1"),
        ("<b>", "<b>", "<b>"),
    ],
)
def test_a_cell_is_what_people_read_and_what_it_is_sorted_by(value, text, key):
    assert report.cell(value) == (text, key)


def test_listing_of_a_long_table_says_how_many_rows_it_has():
    rows = pd.DataFrame({"model": ["a", "a"], "layer": ["all", "wte"], "feature": ["h0_total"] * 2, "n": [1, 2]})
    listed = report.listing("transitions", rows)
    assert listed.rows.to_dict("list") == {"model": ["a"], "feature": ["h0_total"], "n": [1]}
    assert listed.total == 2


def report_of(warnings, models=None, **more):
    """The report of made-up tables, without figures unless there are `more`."""
    models = figure_tables.models_table() if models is None else models
    in_it = {
        name: table[table["model"].isin(models["model"])]
        for name, table in (("features", figure_tables.features_table()), ("metrics", figure_tables.metrics_table()))
    }
    arguments = {
        "run": "mine",
        "config_text": "run: mine",
        "models": models,
        **in_it,
        "summary": schemas.TABLES["summary"].frame([]),
        "claims": None,
        "warnings": report.listing("warnings", schemas.TABLES["warnings"].frame(warnings)),
        "advice": schemas.TABLES["advice"].frame([]),
        "training": schemas.TABLES["training"].frame([]).assign(model=""),
        "pictures": [],
        "listings": [],
        "comparison": None,
        "runtimes": pd.DataFrame({"rule": ["summary"]}),
        "lede": "Models.",
        "facts": [],
        "agreement": "",
        "rerun": provenance.rerun({}, run="mine", lock_name="lock", lock_hash="0"),
    }
    return report.report(**(arguments | more))


NO_CLAIMS = pd.DataFrame(columns=["source", "claim", "statement", "answer", "numbers", "test", "reason"])


FACT = {"model": "a", "steps": "", "concerns": "weights", "warning": "no ESD exponent α (too small): 4.weight"}


@pytest.mark.parametrize(
    ("remedies", "said", "listed"),
    [
        ([""], "There are no warnings.", 0),
        (["", "train longer"], 'There is <a href="#warnings">1 warning</a>.', 1),
        (["train", "train longer"], 'There are <a href="#warnings">2 warnings</a>.', 2),
    ],
)
def test_what_has_no_remedy_stands_apart_from_the_warnings(remedies, said, listed):
    page = report_of([FACT | {"remedy": remedy} for remedy in remedies], claims=NO_CLAIMS)
    assert said in page
    assert ('id="rows-warnings"' in page) == (listed > 0)
    if listed:
        assert rows_of(page, "warnings").count("<tr") == listed
    assert ("<h3>What was left out</h3>" in page) == (listed < len(remedies))
    if listed < len(remedies):
        assert rows_of(page, "left_out").count("<tr") == 1


def test_report_has_its_tables_without_javascript():
    """The first rows of a long table are HTML of the page; the others follow them in their order."""
    rows = pd.DataFrame({"model": "a <b>", "feature": "h0_total", "n": np.arange(250) / 7})
    page = report_of([FACT | {"remedy": "train"}], listings=[report.Listing("transitions", rows)])
    shown = re.sub(r'<script type="text/plain".*?</script>', "", page, flags=re.DOTALL)
    assert "too small" in shown
    assert shown.count('<tr data-model="a &lt;b&gt;" data-group="topology">') == report.ROWS_IN_PAGE
    keys = re.findall(r'<td class="number" data-key="([^"]*)">', rows_of(page, "transitions"))
    assert keys == [repr(float(value)) for value in rows["n"]]


def answers_of(*verdicts):
    questions = ["In one sentence", "Which features follow the loss?", f"{WHICH_ADD} the norm?"]
    rows = [
        {"position": k, "question": question, "verdict": verdict, "answer": f"Text {k}.", "numbers": ""}
        for k, (question, verdict) in enumerate(zip(questions, ["", *verdicts], strict=True))
    ]
    return schemas.TABLES["summary"].frame(rows)


def picture_of(name):
    return report.Picture(name, FIGURES[name], '<svg viewBox="0 0 2 1"></svg>', b"")


PICTURES = [picture_of("verdict"), picture_of("loss_curves")]


@pytest.mark.parametrize("found_nothing", [UNTESTED, POWERLESS])
def test_report_of_ones_own_run_leaves_out_what_was_not_tested(found_nothing):
    for last, claims, is_shown in (
        (found_nothing, None, False),
        ("None found", None, True),
        (found_nothing, NO_CLAIMS, True),
    ):
        summary = answers_of("3 of 4 features", last)
        page = report_of([], summary=summary, pictures=PICTURES, claims=claims)
        assert ("Text 2." in page, 'data-figure="verdict"' in page) == (is_shown, is_shown)
        assert "Text 1." in page
        assert 'data-figure="loss_curves"' in page


def test_the_first_answers_stand_above_the_cards_of_ones_own_run():
    page = report_of([], pictures=PICTURES)
    answers = page[page.index('id="first"') : page.index('id="cards"')]
    assert answers.count("Has it finished learning?") == answers.count('href="#figure-loss_curves"')
    assert answers.count("Is anything odd?") == len(figure_tables.models_table())
    assert 'id="figure-loss_curves"' in page
    assert 'href="#figure-layer_heat_map"' not in page  # it was not drawn
    assert 'id="first"' not in report_of([], claims=NO_CLAIMS)


def test_report_of_one_model_leaves_out_empty_tables():
    one = {"source": "weights", "feature": "h0_total"}
    named = {
        "scaling": pd.DataFrame([one | {"reason": "1 size; this law needs at least 3"}]),
        "transitions": pd.DataFrame([one | {"reason": ""}, one | {"reason": "constant"}]),
        "pooled_correlations": pd.DataFrame([one]),
    }
    listings = [report.Listing(name, rows, "", len(rows)) for name, rows in named.items()]
    for n_models, listed in ((1, ["transitions"]), (3, ["transitions", "pooled_correlations"])):
        page = report_of([], figure_tables.models_table()[:n_models], listings=listings)
        assert [name for name in named if f'id="rows-{name}"' in page] == listed
        assert ("The buttons show and hide models" in page, '<div class="bar" data-chips="models">' in page) == (
            n_models > 1,
        ) * 2
        assert 'data-value="topology"' in page
        assert 'data-value="curvature"' not in page


def test_report_of_one_checkpoint_has_values_and_no_charts():
    features = figure_tables.features_table()
    last = features[features["step"] == features["step"].max()]
    page = report_of([], figure_tables.models_table()[:1], features=last)
    assert "<h2>The layers</h2>" in page
    assert report.ONE_CHECKPOINT_CAPTION in page
    assert '<section id="training" hidden>' in page
    whole = report_of([], figure_tables.models_table()[:1])
    assert "<h2>The layers that changed most</h2>" in whole
    assert '<section id="training">' in whole


def test_cards_say_from_which_step_a_loss_is_not_finite():
    rows = [("m", step, "training_loss", value) for step, value in ((1, 2.0), (2, 1.5), (3, np.nan), (4, np.nan))]
    metrics = pd.DataFrame(rows, columns=["model", "step", "metric", "value"])
    assert cards._loss(metrics) == "training loss 1.5 at step 2; not finite from step 3 on"
    assert cards._loss(metrics[:2]) == "training loss 1.5 at step 2"
    key = {"model": "m", "source": "weights", "feature": "frobenius_norm"}
    norms = [("a", 1, 2.0), ("a", 2, 3.0), ("b", 1, 2.0), ("b", 2, np.nan)]
    features = pd.DataFrame([key | {"layer": layer, "step": step, "value": value} for layer, step, value in norms])
    table = cards.layer_table(pd.DataFrame({"model": ["m"]}), features)
    assert table.to_dict("list") == {"layer": ["a"], "weight norm ×": [1.5]}


def test_the_card_of_a_planned_model_asks_for_no_losses():
    tables = {name: schemas.TABLES[name].frame([]) for name in ("metrics", "features", "warnings", "advice")}
    models = figure_tables.models_table()[:1].assign(model="planned")
    lines = dict(cards.cards(models, **tables)[0].lines)
    assert lines["Checkpoints"] == "none, since it has not started"
    assert "Loss" not in lines


def test_layer_table_has_models_that_end_at_other_steps():
    norms = [("a", 1, 2.0), ("a", 2, 3.0), ("a", 3, 4.0), ("b", 2, 2.0), ("b", 1, 4.0)]
    key = {"source": "weights", "layer": "w", "feature": "frobenius_norm"}
    features = pd.DataFrame([key | {"model": model, "step": step, "value": value} for model, step, value in norms])
    table = cards.layer_table(pd.DataFrame({"model": ["a", "b"]}), features)
    assert set(table.itertuples(index=False, name=None)) == {("a", "w", 2.0), ("b", "w", 0.5)}


def test_layer_table_without_weights_has_no_rows():
    columns = ["model", "source", "feature", "layer", "step", "value"]
    features = pd.DataFrame(columns=columns).astype({"step": int, "value": float})
    table = cards.layer_table(pd.DataFrame({"model": ["m"]}), features)
    assert table.to_dict("list") == {"layer": []}


@pytest.mark.parametrize("n_models", [1, 3])
def test_the_heading_counts_the_models(n_models):
    page = report_of([], figure_tables.models_table()[:n_models])
    assert f"<h1>Run “mine”: {n_models} model{'s' * (n_models > 1)}</h1>" in page


def test_caption_names_the_largest_of_several_models():
    heat_map, overview = FIGURES["layer_heat_map"], FIGURES["overview"]
    assert heat_map.full_caption(1) == heat_map.caption
    assert heat_map.full_caption(2) == f"{heat_map.caption} Of a model of the largest size."
    assert overview.full_caption(2) == overview.caption
    assert not any("largest model" in entry.caption for entry in FIGURES.values())


CORPUS = {"source": "python-docs", "tokenizer": "characters", "tokens": {"train": 9000, "validation": 700}}
TRAINING = {
    "steps": 500,
    "batch_size": 4,
    "context": 16,
    "checkpoint_every": 50,
    "learning_rate": 0.003,
    "warmup_steps": 10,
}


def provenance_of(kinds, sources=("weights",), seeds=(42,)):
    """What the report says of a run with a model a kind."""
    names = [f"{kind}-model" for kind in kinds]
    config = {
        "models": {name: {"kind": kind} for name, kind in zip(names, kinds, strict=True)},
        "training": TRAINING,
        "corpus": {"train": [], "validation": []},
        "seeds": list(seeds),
    }
    models = pd.DataFrame(
        {"model": names, "n_parameters": 1000, "d_model": np.nan, "n_layers": np.nan, "n_heads": np.nan}
    )
    rows = [
        (name, step, source, layer, feature)
        for name in names
        for step in (0, 500)
        for source in sources
        for layer, feature in (("all", "h0_total"), ("wte", "h0_total"), ("wte", "cosine"))
    ]
    features = pd.DataFrame(rows, columns=["model", "step", "source", "layer", "feature"])
    facts = provenance.what_was_run(config, CORPUS, models, features)
    return facts["lede"], dict(facts["facts"])


def test_a_run_that_trains_its_models_says_on_what():
    lede, facts = provenance_of(["gpt"])
    assert lede.startswith("1 language model of 1,000 parameters, trained for 500 steps on 9,000 tokens")
    assert "700 for validation" in facts["Text"]
    assert "500 steps of 4 × 16 tokens" in facts["Training"]


def test_what_was_run_counts_features_of_layers_and_models():
    measured = provenance_of(["gpt"], sources=("weights", "embeddings"))[1]["Measured"]
    assert measured.split("; ") == [
        f"2 features of the {source}, 1 of them of the whole model" for source in ("embeddings", "weights")
    ]


def test_what_was_run_names_no_training_of_fetched_models():
    lede, facts = provenance_of(["folder", "hub"])
    assert "1 downloaded from the Hugging Face Hub, 1 read from a folder" in lede
    assert "trained" not in lede
    assert not {"Training", "Text"} & set(facts)
    _, facts = provenance_of(["folder"], sources=("weights", "embeddings"))
    assert "for training" not in facts["Text"]
    assert "own tokenizers" in facts["Text"]


def test_models_of_one_origin_are_counted_once():
    lede, _ = provenance_of(["folder", "folder"])
    assert lede == "2 language models of 1,000 parameters, read from a folder: 2 checkpoints."


def test_models_of_several_origins_are_counted():
    assert "1 known only by their loss curves, 1 planned and not yet started;" in provenance_of(["planned", "table"])[0]
    lede, facts = provenance_of(["gpt", "folder", "table"])
    assert "1 trained here, 1 read from a folder, 1 known only by their loss curves" in lede
    assert "Training" in facts


def test_drawing_has_names_of_its_own_and_marks_models(tmp_path):
    """Two figures in a page must not answer to each other's names."""
    tables = figure_tables.models_table(), figure_tables.features_table(source="embeddings")
    figure = load("embeddings_over_training")(models=tables[0], features=tables[1])
    svg = tmp_path / "embeddings_over_training.svg"
    style.save(figure, svg)
    picture = report.Picture("embeddings", ENTRY, svg.read_text(), svg.with_suffix(".png").read_bytes())
    drawn = report.drawing(picture)
    names = set(re.findall(r'\bid="([^"]+)"', drawn))
    assert names
    assert all(name.startswith("embeddings-") for name in names)
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawn))
    assert used
    assert {first or second for first, second in used} <= names
    assert set(re.findall(r'data-model="([^"]+)"', drawn)) == set(figure_tables.SIZES)
    assert "A &lt;title&gt;" in drawn
    head = drawn[: drawn.index(">")]
    assert "aspect-ratio" in head
    assert " width=" not in head
    assert " height=" not in head


def test_save_writes_a_pdf_of_the_same_bytes_where_it_is_asked_for(tmp_path):
    tables = {"models": figure_tables.models_table(), "features": figure_tables.features_table(source="embeddings")}
    for name in ("one", "other"):
        style.save(load("embeddings_over_training")(**tables), tmp_path / f"{name}.svg", pdf=name == "one")
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    assert not (tmp_path / "other.pdf").exists()
    style.save(load("embeddings_over_training")(**tables), tmp_path / "other.svg", pdf=True)
    assert (tmp_path / "one.pdf").read_bytes() == (tmp_path / "other.pdf").read_bytes()


@pytest.mark.parametrize(("rows", "reason"), [(slice(None), ""), (slice(0), "no values of: H₀ total persistence")])
def test_the_report_gets_the_reason_of_a_figure_without_data(tmp_path, rows, reason):
    features = figure_tables.features_table(source="embeddings")[rows]
    figure = load("embeddings_over_training")(models=figure_tables.models_table(), features=features)
    svg = tmp_path / "embeddings_over_training.svg"
    style.save(figure, svg)
    picture = report_script.picture(svg)
    assert (picture.name, picture.svg, picture.png) == (
        "embeddings_over_training",
        svg.read_text(),
        svg.with_suffix(".png").read_bytes(),
    )
    assert picture.missing.startswith(reason)
    assert bool(picture.missing) == bool(reason)


def test_a_drawing_that_is_too_large_is_put_in_as_its_png():
    svg = '<svg viewBox="0 0 1 1">' + " " * report.LARGEST_SVG + "</svg>"
    drawn = report.drawing(report.Picture("x", ENTRY._replace(title="X"), svg, b"png"))
    assert drawn == Markup('<img src="data:image/png;base64,{}" alt="X">').format(base64.b64encode(b"png").decode())


def test_a_column_keeps_its_gaps():
    metrics = pd.DataFrame({"model": "a", "step": [0, 1, 2], "metric": "training_loss", "value": [1.0, np.nan, np.inf]})
    values = with_metrics(figure_tables.features_table()[:0], metrics)
    keys = chart_data.keys_of(values)
    assert [key["name"] for key in chart_data.described(keys)] == ["training loss"]
    assert chart_data.columns(values, keys) == {
        "steps": [0, 1, 2],
        "columns": {"0": {"at": None, "values": [1.0, None, None]}},
    }


def test_described_has_the_units_of_the_registry():
    named = {
        ("weights", "h0_count"): ("H₀ bars", "count"),
        ("embeddings", "h0_total"): ("H₀ total persistence", "embedding units"),
        ("metric", "validation_loss"): ("validation loss", "nats per token"),
        ("metric", "accuracy (top 5)"): ("accuracy (top 5)", ""),
        ("weights", "mine  [second] (count)"): ("mine  [second] (count)", ""),
    }
    keys = pd.DataFrame([(source, "all", name) for source, name in named], columns=["source", "layer", "feature"])
    described = chart_data.described(keys)
    assert [(key["name"], key["unit"]) for key in described] == list(named.values())


def parts(**changes):
    tables = {
        "models": figure_tables.models_table(),
        "features": figure_tables.features_table(),
        "metrics": figure_tables.metrics_table(),
        "diagrams": figure_tables.diagrams_table(),
    }
    return explorer.parts(run="made up", **(tables | changes))


def models_of(made):
    """The models of a page with what it draws of each."""
    return [one | made[f"model-{k}"] for k, one in enumerate(made["run"]["models"])]


def test_a_page_holds_plotly_and_the_parts_unchanged():
    made = parts()
    page = explorer.explorer(
        run="made up",
        models=figure_tables.models_table(),
        features=figure_tables.features_table(),
        metrics=figure_tables.metrics_table(),
        diagrams=figure_tables.diagrams_table(),
    )
    assert {name: json.loads(held(page, f"data-{name}")) for name in made} == made
    assert held(page, "plotly") == plotly.offline.get_plotlyjs()


def test_every_bar_is_in_the_explorer_to_four_digits():
    diagrams = figure_tables.diagrams_table()
    diagrams.loc[diagrams.index[0], "death"] = np.inf
    made = parts(diagrams=diagrams)
    assert f"All {len(diagrams):,} bars of the run are in this page." in made["run"]["notes"]
    rows = []
    for model in models_of(made):
        for part in model["diagrams"]:
            starts = part["starts"]
            for k, step in enumerate(part["steps"]):
                ends = [part[end][starts[k] : starts[k + 1]] for end in ("births", "deaths")]
                assert part["counts"][k] == len(ends[0])
                rows += [
                    (model["name"], step, part["layer"], part["dimension"], birth, np.inf if death is None else death)
                    for birth, death in zip(*ends, strict=True)
                ]
    names = ["model", "step", "layer", "dimension", "birth", "death"]
    rows = pd.DataFrame(rows, columns=names)
    where = names[:4]
    assert (rows.groupby(where).size() == diagrams.groupby(where).size()).all()
    for end in ("birth", "death"):
        ours, theirs = (table.sort_values([*where, end])[end].to_numpy() for table in (rows, diagrams))
        assert np.isinf(theirs).sum() == (end == "death")
        assert ours == pytest.approx(theirs, rel=5.1e-4)


def test_a_large_run_keeps_the_longest_bars_and_says_so(monkeypatch):
    monkeypatch.setattr(explorer, "MAX_BARS", 500)
    diagrams = figure_tables.diagrams_table()
    made = parts(diagrams=diagrams)
    models = models_of(made)
    kept = sum(len(part["births"]) for model in models for part in model["diagrams"])
    assert 400 < kept <= 500
    assert made["run"]["notes"][0].startswith("Thinned")
    assert f"{kept} of the {len(diagrams):,} bars" in made["run"]["notes"][0]
    model, part = next((m, p) for m in models for p in m["diagrams"] if p["dimension"] == 0)
    chosen = diagrams.query(f"model == '{model['name']}' and dimension == 0 and step == {part['steps'][0]}")
    chosen = chosen[chosen["layer"] == part["layer"]]
    longest = part["starts"][1]
    assert part["counts"][0] == len(chosen) > longest
    assert part["deaths"][:longest] == pytest.approx(np.sort(chosen["death"])[::-1][:longest].tolist(), rel=1e-3)


def test_columns_tell_a_missing_value_from_nan():
    features = figure_tables.features_table()
    series = features[
        (features["model"] == "tiny-3k") & (features["feature"] == "h0_total") & (features["layer"] == "all")
    ]
    features.loc[series.index[0], "value"] = np.nan
    made = parts(features=features.drop(series.index[1]))
    model = models_of(made)[0]
    assert model["name"] == "tiny-3k"
    key = next(k for k, key in enumerate(made["run"]["keys"]) if (key["feature"], key["layer"]) == ("h0_total", "all"))
    column = model["columns"][str(key)]
    steps = [model["steps"][place] for place in column["at"]]
    assert steps == [step for k, step in enumerate(series["step"]) if k != 1]
    assert column["values"][0] is None
    assert column["values"][1:] == pytest.approx(series["value"].to_numpy()[2:].tolist(), rel=1e-4)


def test_a_large_surface_is_thinned_and_its_merge_tree_is_whole(monkeypatch):
    surfaces = figure_tables.surfaces_table()
    whole = models_of(parts(surfaces=surfaces))[-1]["surfaces"][0]
    plane = surfaces[surfaces["plane"] == most_informative(set(surfaces["plane"]))]
    quarter = -(-len(plane) // 4)
    monkeypatch.setattr(explorer, "MAX_LOSSES", quarter)
    made = parts(surfaces=surfaces)
    thin = models_of(made)[-1]["surfaces"][0]
    assert "every second is drawn" in made["run"]["notes"][-1]
    assert (len(whole["losses"]), len(thin["losses"]), len(thin["losses"][0])) == (21, 11, 11)
    assert [row[::2] for row in whole["losses"][::2]] == thin["losses"]
    assert (thin["x"], thin["nodes"]) == (whole["x"][::2], whole["nodes"])
    assert thin["minima"] == whole["minima"] > 1


def test_the_explorer_is_the_same_for_the_same_tables():
    assert parts() == parts()


def test_rounded_has_significant_digits_and_none():
    assert chart_data.rounded([123456.0, -0.000123456, np.nan, np.inf, 0.0], 3) == [
        123000.0,
        -0.000123,
        None,
        None,
        0.0,
    ]


@pytest.mark.parametrize(
    "facts",
    ["[]", "{", '{"n_parameters": "many"}', '{"final_step": [1]}', '{"schedule": 3, "n_parameters": 9}', "\xff"],
)
def test_watch_says_what_is_wrong_with_a_file_and_stays(tmp_path, facts):
    folder = Folder(tmp_path, "one")
    log = records.Log(folder)
    for step in range(3):
        log.training(step, 2.0, 0.5, 1e-3)
    log.write(2)
    folder.facts_file.parent.mkdir(exist_ok=True)
    folder.facts_file.write_bytes(facts.encode("latin-1"))
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert follower.parts["run"]["state"] not in ("", "Reading.")
    folder.facts_file.write_text('{"n_parameters": 9, "tokens_per_step": 1, "final_step": 9}')
    follower.refresh()
    assert follower.parts["run"]["state"] == "No checkpoint yet."


def saved_checkpoint(path, step):
    """Write a checkpoint of one matrix as the Trainer names it; its folder."""
    checkpoint = path / f"checkpoint-{step}"
    checkpoint.mkdir()
    save_file({"w": np.full((3, 4), step, dtype=np.float32)}, checkpoint / "model.safetensors")
    return checkpoint


def test_watch_names_a_damaged_trainer_state(tmp_path):
    for step in (10, 20):
        checkpoint = saved_checkpoint(tmp_path, step)
        state = {"log_history": [{"step": at, "loss": 4.0} for at in range(1, step)], "global_step": step}
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    follower, whole = watch.Follower(tmp_path), json.dumps(state)

    def told():
        follower.refresh()
        return follower.parts["run"]["state"]

    assert told() == "The last checkpoint is that of step 20."
    (tmp_path / "checkpoint-20/trainer_state.json").write_text("{")
    assert told().startswith(
        f"The last checkpoint is that of step 20. {tmp_path}/checkpoint-20/trainer_state.json: not the state of a Trainer ("
    )
    (tmp_path / "trainer_state.json").write_text(whole)  # which holds the log to that step, too
    assert told() == "The last checkpoint is that of step 20."
    (tmp_path / "checkpoint-20/trainer_state.json").write_text(whole)
    (tmp_path / "trainer_state.json").write_text("{")
    assert f"{tmp_path}/trainer_state.json: not the state of a Trainer (" in told()


def followed_model(path, name):
    """Write one step of a monitored model into a folder."""
    folder = Folder(path, name)
    log = records.Log(folder)
    log.training(1, 2.0, 0.5, 1e-3)
    log.write(1)
    folder.facts_file.parent.mkdir(exist_ok=True)
    folder.facts_file.write_text('{"n_parameters": 9}')


def test_follower_forecasts_again_after_a_twentieth_more_steps(tmp_path, monkeypatch):
    folder, asked = Folder(tmp_path, "m"), []
    folder.write_facts(n_parameters=25_000_000, tokens_per_step=500_000, final_step=24_000)
    monkeypatch.setattr(watch, "_outlook", lambda run, *_: asked.append(run.progress.step) or {"advice": "as it was."})
    follower = watch.Follower(tmp_path)

    def advice_at(step, loss):
        row = {"step": step, "loss": loss, "gradient_norm": 1.0, "learning_rate": 1e-3}
        records.add(folder, "training", step, [row])
        follower.refresh()
        return follower.parts["model-0"]["advice"]

    assert [advice_at(step, 3.0).splitlines()[-1] for step in (1000, 1010, 1060, 1070)] == ["as it was."] * 4
    first, *answers, last = advice_at(1080, float("nan")).splitlines()
    assert (first, last) == ("Alert: since step 1,080 the loss is not a finite number.", "as it was.")
    assert [answer.partition("?")[0] for answer in answers] == [
        "Has it finished learning",
        "Is anything odd",
        "What changed most, and where",
    ]
    assert follower.alerts == {"m": [Alert(AlertKind.NOT_FINITE, 1080, "the loss is not a finite number")]}
    assert asked == [1000, 1060]
    folder.write_facts(final_step=30_000)
    assert advice_at(1090, 3.0).endswith("as it was.")
    assert asked == [1000, 1060, 1090]


def test_a_folder_that_comes_back_as_it_was_is_shown_again(tmp_path):
    path = tmp_path / "run"
    followed_model(path, "one")
    follower = watch.Follower(path)
    follower.refresh()
    before = follower.parts["run"]["state"]
    path.rename(tmp_path / "elsewhere")
    follower.refresh()
    assert "is not there yet" in follower.parts["run"]["state"]
    (tmp_path / "elsewhere").rename(path)
    follower.refresh()
    assert follower.parts["run"]["state"] == before


def test_a_model_that_is_removed_leaves_the_page(tmp_path):
    followed_model(tmp_path, "one")
    followed_model(tmp_path, "two")
    follower = watch.Follower(tmp_path)

    def shown():
        follower.refresh()
        return [model["name"] for model in follower.parts["run"]["models"]]

    assert shown() == ["one", "two"]
    shutil.rmtree(tmp_path / "training" / "two")
    (tmp_path / "models" / "two.json").unlink()
    assert shown() == ["one"]


@pytest.mark.parametrize("write", [lambda path: followed_model(path, "one"), lambda path: saved_checkpoint(path, 10)])
def test_what_was_read_before_costs_a_look_nothing(tmp_path, monkeypatch, write):
    write(tmp_path)
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert len(follower.parts["run"]["models"]) == 1
    made = []
    monkeypatch.setattr(watch, "_named", lambda *arguments: made.append(arguments))
    follower.refresh()
    assert made == []


def test_a_file_that_is_no_monitors_hides_no_model(tmp_path):
    followed_model(tmp_path, "one")
    (tmp_path / "models" / "._one.json").write_bytes(b"\0")  # as macOS writes next to a file that it copies
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert [model["name"] for model in follower.parts["run"]["models"]] == ["one"]


@pytest.mark.parametrize("tokens_per_step", [np.nan, 100.0])
def test_outlooks_without_tokens_ask_for_a_language_model(tokens_per_step):
    steps = np.arange(10.0, 60.0, 10.0)
    log = {"step": steps, "loss": np.linspace(1, 2, 5), "learning_rate": np.full(5, 1e-3)}  # rises: no advice
    schedule = LearningRateSchedule(100, np.full(101, 1e-3))
    training = TrainingRun.of(RunFacts("mlp", 1000, tokens_per_step), schedule, log, {})
    told = watch._outlook(training, [training], 50)["advice"]
    assert "No advice: " in told
    assert ("It is not known to be a language model" in told) == np.isnan(tokens_per_step)


def test_the_page_that_follows_a_training_tells_an_alert(tmp_path):
    folder = Folder(tmp_path, "one")
    folder.facts_file.parent.mkdir()
    folder.facts_file.write_text('{"n_parameters": 9}')
    log = records.Log(folder)
    for step in range(9):
        log.training(step, np.nan if step == 7 else 2.0, 0.5, 1e-3)
    log.write(8)
    follower = watch.Follower(tmp_path)
    follower.refresh()
    [told] = [part["advice"] for part in follower.parts.values() if "advice" in part]
    assert told.startswith("Alert: since step 7 the loss is not a finite number.\nHas it finished learning?")
    assert "\nNo forecast: " in told


def test_the_page_of_a_plain_folder_says_the_first_answers_of_its_report(tmp_path):
    """Checkpoints of a training loop with a log next to them; the validation loss has risen."""
    for number, step in enumerate(range(100, 1300, 100)):
        matrix = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
        save_file({"w": matrix * (1 + number)}, tmp_path / f"step-{step}.safetensors")
    steps = np.arange(10, 1201, 10)
    log = pd.DataFrame({"step": steps, "train_loss": 4 - 0.3 * np.log(steps)})
    log["val_loss"] = np.where(steps % 100 == 0, 2 + np.abs(np.log(steps / 500)), np.nan)
    log.to_csv(tmp_path / "log.csv", index=False)
    follower = watch.Follower(tmp_path)
    follower.refresh()
    [name] = follower.alerts
    [alert] = follower.alerts[name]
    assert (alert.kind, alert.step) == (AlertKind.RISING, 1200)
    assert alert.message.endswith("the last one is 2.875, and the training loss has fallen since: overfitting")
    curve = loss_curves.read(tmp_path / "log.csv")
    rows = [user_tables.metric_table(curve, name, range(100, 1300, 100)), user_tables.training_table(curve)]
    features = toposcale.features_of(tmp_path).assign(source="weights", model=name)
    first, _, changed = run_answers(rows[0].to_pandas(), features, rows[1].to_pandas())
    shown = follower.parts["model-0"]["advice"].splitlines()
    assert shown[1].startswith(f"{first.question} {first.text.partition(' Changes')[0]}")
    assert shown[3].startswith(
        f"{changed.question} The norm of w, x 12, from step 100 to 1,200. Between two checkpoints w "
    )


def inverted(colour):
    """Relative luminance (WCAG 2.1) of a colour behind the filter that dark mode puts on what is drawn for white."""
    rule = re.search(r"\.light.*filter: invert\((.+?)\) hue-rotate\(180deg\) brightness\((.+?)\)", BASE.read_text())
    share, brightness = map(float, rule.groups())
    turned = [[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]]  # hue-rotate(180deg)
    inverse = share + np.array(to_rgb(colour)) * (1 - 2 * share)
    seen = np.clip(brightness * np.clip(turned @ inverse, 0, 1), 0, 1)
    return np.where(seen <= 0.03928, seen / 12.92, ((seen + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("colour", [*style.SEVERAL_COLOURS, style.STRIKING, "light", "dark"])
def test_what_is_drawn_stands_out_in_dark_mode(colour):
    sizes = pd.DataFrame({"model": ["light", "dark"], "n_parameters": [1, 2]})
    models = {model: look.color for model, look in style.model_appearances(sizes).items()}
    assert (inverted(models.get(colour, colour)) + 0.05) / (inverted("white") + 0.05) >= 3
