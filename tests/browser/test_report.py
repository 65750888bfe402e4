"""The report in a real browser: it loads clean, its figures open, its tables sort, its toggles hide."""

import re

import pandas as pd
import pytest

pytestmark = pytest.mark.workflow


# Charts, drawings and further rows are unpacked when they come near the window: see all of the page at once.
WHOLE = "Promise.all($$('[data-packed]').map(fill))"


@pytest.fixture
def page(finished, browser):
    browser.open(finished.results / "report.html")
    return browser


@pytest.fixture
def opened(page):
    """The page with nothing folded."""
    page.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    return page


@pytest.fixture
def unpacked(opened):
    """The page with every drawing and row in it."""
    opened.run(f"{WHOLE}.then(() => 0)")
    opened.wait_for("[...document.querySelectorAll('[data-figure]')].every((e) => e.firstElementChild)")
    return opened


@pytest.fixture
def charted(opened):
    """The page with its charts."""
    opened.run("document.querySelector('#charts').scrollIntoView({behavior: 'instant'})")
    opened.wait_for("document.body.dataset.ready === 'yes'")
    opened.wait_for("document.querySelectorAll('#charts .chart').length === 6")
    opened.wait_for("[...document.querySelectorAll('#charts .chart')].every((e) => e.dataset.drawn)")
    return opened


def test_it_loads_without_an_error_and_asks_the_network_for_nothing(page):
    assert page.errors() == []
    assert page.requests() == []
    # What is loaded by name would be seen here even if it came from a cache.
    assert page.run("performance.getEntriesByType('resource').filter((e) => !e.name.startsWith('data:')).length") == 0
    assert "works offline" in page.run("document.body.innerText")


def test_an_error_on_the_page_would_be_seen(page):
    page.run("void setTimeout(() => { throw new Error('planted') })")
    page.run("fetch('http://127.0.0.1:9/planted').catch(() => 0)")  # and waits: it must not fail in the next test
    messages = page.errors()
    assert any("planted" in message for message in messages)
    assert any("Failed to load resource" in message for message in messages)
    assert page.requests() == ["http://127.0.0.1:9/planted"]


def test_the_first_screen_holds_the_models_and_the_answers_follow(page, finished):
    """In a window of a laptop, before anything is scrolled: what the models are, where they stand and what to do."""
    bottom = "Math.max(...[...document.querySelectorAll('{}')].map((e) => e.getBoundingClientRect().bottom))"
    models = pd.read_parquet(finished.results / "tables" / "models.parquet").sort_values("n_parameters")
    cards = page.run("[...document.querySelectorAll('.card')].map((e) => e.innerText)")
    assert len(cards) == len(models)
    metrics = pd.read_parquet(finished.results / "tables" / "metrics.parquet").query("metric == 'validation_loss'")
    for card, row in zip(cards, models.itertuples(), strict=True):
        last = metrics[metrics["model"] == row.model].sort_values("step").iloc[-1]
        assert card.startswith(row.model)
        assert f"{row.n_parameters:,} parameters" in card
        assert f"validation loss {last['value']:.4g} at step {last['step']:,}" in card
        assert "the run is finished" in card
    assert page.run(bottom.format(".card")) < 900
    summary = pd.read_parquet(finished.results / "tables" / "summary.parquet").sort_values("position")
    questions = summary.loc[summary["position"] > 0, "question"].tolist()
    assert len(questions) >= 5
    assert page.run("[...document.querySelectorAll('.answer h3')].map((e) => e.textContent)") == questions
    assert page.run("document.querySelector('.answer').getBoundingClientRect().top") > page.run(bottom.format(".card"))
    lede = page.run("document.querySelector('.lede').innerText")
    assert "2 language models of 2,040 to 3,636 parameters, trained for 40 steps" in lede
    assert "train.txt" in lede


def test_a_figure_opens_and_closes(unpacked):
    height = "document.querySelector('#large svg')?.getBoundingClientRect().height ?? 0"
    assert unpacked.run(height) == 0
    unpacked.click("[data-figure=embeddings_over_training]")
    assert unpacked.run("document.querySelector('#large').open")
    assert unpacked.run(height) > 300
    assert unpacked.run("document.querySelector('[data-figure=embeddings_over_training] svg')") is None
    unpacked.click("#close")
    unpacked.wait_for("document.querySelector('[data-figure=embeddings_over_training] svg') !== null")
    assert unpacked.run(height) == 0
    assert unpacked.errors() == []


def test_a_figure_takes_no_other_place_once_it_is_drawn(opened):
    last = "[...document.querySelectorAll('.gallery figure')].at(-1)"
    height = f"{last}.getBoundingClientRect().height"
    opened.run(f"{last}.scrollIntoView()")
    opened.wait_for(f"{last}.childElementCount === 1")
    drawn = opened.run(height)
    opened.run(f"{last}.replaceChildren()")
    assert drawn > 100
    assert abs(opened.run(height) - drawn) < 1


def test_a_table_sorts_by_value_both_ways(unpacked):
    rows = "#verdicts + .listing .scroll tbody tr"
    column = f"[...document.querySelectorAll('{rows}')].map((row) => row.cells[4].dataset.key)"
    before = unpacked.run(column)
    head = "#verdicts + .listing .scroll th:nth-child(5) button"
    unpacked.click(head)
    up = unpacked.run(column)
    unpacked.click(head)
    down = unpacked.run(column)
    numbers = [float(text) for text in before if text]
    missing = [""] * (len(before) - len(numbers))
    assert len(set(numbers)) > 5
    assert before != up
    assert [float(text) for text in up if text] == sorted(numbers)
    assert up[len(numbers) :] == missing
    assert [float(text) for text in down if text] == sorted(numbers, reverse=True)
    assert down[len(numbers) :] == missing


SEEN = "[...document.querySelectorAll('{}')].filter((e) => e.getClientRects().length).length"


def test_a_model_is_hidden_in_charts_figures_and_tables(unpacked):
    places = {
        where: (SEEN.format(f"{where} [data-model=one]"), SEEN.format(f"{where} [data-model=two]"))
        for where in ("[data-figure=overview]", "[data-figure=embeddings_over_training]", "table")
    }
    before = {where: [unpacked.run(script) for script in pair] for where, pair in places.items()}
    assert min(number for pair in before.values() for number in pair) > 0
    unpacked.click("[data-hides=model][data-value=one]")
    for where, (one, two) in places.items():
        assert unpacked.run(one) == 0, where
        assert unpacked.run(two) == before[where][1], where
    unpacked.click("[data-hides=model][data-value=one]")
    assert {where: [unpacked.run(script) for script in pair] for where, pair in places.items()} == before


LINES = "document.querySelector('#charts [data-key=\"weights/h0_total\"] .chart').data.map((trace) => trace.name)"


def test_a_model_is_hidden_in_the_charts(charted):
    assert charted.run(LINES) == ["one", "two"]
    charted.click("[data-hides=model][data-value=one]")
    charted.wait_for(f"{LINES}.length === 1")
    assert charted.run(LINES) == ["two"]
    assert charted.errors() == []


def test_pointing_at_a_chart_says_the_value_of_the_table(charted, finished):
    features = pd.read_parquet(finished.results / "tables" / "features.parquet")
    value = features.query(
        "model == 'two' and step == 16 and source == 'weights' and layer == 'all' and feature == 'h0_total'"
    )["value"].item()
    label = charted.point_at("#charts [data-key='weights/h0_total'] .chart", 1, 2)
    assert float(re.search(r"step 16: ([\d.]+)", label).group(1)) == pytest.approx(value, rel=1e-3)
    assert "two" in label


def test_a_box_of_steps_narrows_every_chart(charted):
    charted.put("#from", "24")  # the other way round means the same
    charted.put("#to", "8")
    axis = "document.querySelector('#charts .chart').layout.xaxis.range"
    charted.wait_for(f"{axis}?.[1] === 24")
    assert charted.run(axis) == [8, 24]


def test_the_first_paint_comes_within_two_seconds(page):
    """Plotly, charts, drawings and rows are unpacked after it."""
    page.wait_for("performance.getEntriesByName('first-contentful-paint').length === 1")
    paint = page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert 0 < paint < 2000


def test_warnings_say_what_to_do(unpacked, finished):
    warnings = pd.read_parquet(finished.results / "tables" / "warnings.parquet")
    assert list(warnings) == ["model", "steps", "concerns", "warning", "remedy"]
    shown = "[...document.querySelectorAll('#warnings tbody tr')].map((row) => row.cells.length)"
    assert len(unpacked.run(shown)) == len(warnings)


def test_a_feature_and_a_subject_are_hidden_and_a_feature_is_added(charted):
    charts = SEEN.format("#charts .chart")
    before = charted.run(charts)
    charted.click("[data-feature=h0_total]")
    assert charted.run(charts) == before - 1
    charted.put("#more", charted.run("document.querySelector('#more').options[1].value"), "change")
    assert charted.run(charts) == before
    weights = SEEN.format("article[data-category=Weights]")
    assert charted.run(weights) > 0
    charted.click("[data-subject=Weights]")
    assert charted.run(weights) == 0
    assert charted.run(SEEN.format("article[data-category=Embeddings]")) > 0


def test_rows_are_found_by_their_words(unpacked):
    rows = SEEN.format("#verdicts + .listing .scroll tbody tr")
    everything = unpacked.run(rows)
    unpacked.put("#verdicts + .listing input", "stable_rank", "input")
    assert 0 < unpacked.run(rows) < everything
    unpacked.put("#verdicts + .listing input", "no such words", "input")
    assert unpacked.run(rows) == 0
    assert "No row matches" in unpacked.run("document.querySelector('#verdicts + .listing').innerText")


def test_enter_opens_a_figure_and_leaves_it_open(unpacked):
    unpacked.run("document.querySelector('[data-figure=embeddings_over_training]').focus()")
    for kind in ("keyDown", "keyUp"):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        unpacked.call("Input.dispatchKeyEvent", type=kind, **key)
    assert unpacked.run("document.querySelector('#large').open")
    unpacked.click("#close")


def test_every_claim_stands_in_the_report(unpacked, finished):
    claims = pd.read_parquet(finished.results / "tables" / "claims.parquet")
    shown = unpacked.run("[...document.querySelectorAll('#claims tbody tr')].map((row) => row.cells[2].textContent)")
    assert shown == list(claims["answer"])
    assert f"{(claims['answer'] == 'not tested').sum()} not tested" in unpacked.run(
        "document.querySelector('#claims').innerText"
    )


def test_nothing_is_wider_than_a_phone(finished, browser):
    browser.open(finished.results / "report.html", width=390, height=844)
    browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.errors() == []


def test_what_it_cost_and_how_to_rerun_it_are_told(unpacked, finished):
    facts = unpacked.run("document.querySelector('#workflow').innerText + document.querySelector('#rerun').innerText")
    for rule in ("train", "weight_features", "correlations", "figures"):
        assert rule in facts
    assert "toposcale run small.yaml" in facts  # the project of this run is a copy, and no clone
    config = unpacked.run("fetch(document.querySelector('#rerun a').href).then((response) => response.text())")
    assert config == (finished.results / "config.yaml").read_text()
