"""The report in a real browser: it loads clean, its figures open, its tables sort, its toggles hide."""

import pytest

# The worker of the finished run, which they share with the tests of the workflow.
pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("finished")]


@pytest.fixture
def page(finished, browser):
    browser.open(finished.results / "report.html")
    return browser


def test_it_loads_without_an_error_and_asks_the_network_for_nothing(page):
    assert page.errors() == []
    assert page.requests() == []
    # What is loaded by name would be seen here even if it came from a cache.
    assert (
        page.run("performance.getEntriesByType('resource').filter((e) => !e.name.startsWith('data:')).length")
        == 0
    )
    assert "net" in page.run("document.body.innerText.toLowerCase()")


def test_an_error_on_the_page_would_be_seen(page):
    page.run("void setTimeout(() => { throw new Error('planted') })")
    page.run("void fetch('http://127.0.0.1:9/planted').catch(() => 0)")
    assert any("planted" in error for error in page.errors())
    assert page.requests() == ["http://127.0.0.1:9/planted"]


def test_the_first_screen_holds_what_was_run_the_answers_and_the_overview(page):
    """In a window of a laptop, before anything is scrolled."""
    bottom = "Math.max(...[...document.querySelectorAll('{}')].map((e) => e.getBoundingClientRect().bottom))"
    assert page.run("document.querySelectorAll('.answer').length") == 5
    assert page.run(bottom.format(".answer")) < 900
    assert page.run(bottom.format("[data-figure=overview] svg")) < 900
    assert page.run(bottom.format(".words")) < 900
    lede = page.run("document.querySelector('.lede').innerText")
    assert "2 language models of 2,040 to 3,636 parameters, trained for 40 steps" in lede
    assert "train.txt" in lede


def test_a_figure_opens_and_closes(page):
    height = "document.querySelector('#large svg')?.getBoundingClientRect().height ?? 0"
    assert page.run(height) == 0
    page.click("[data-figure=homology]")
    assert page.run("document.querySelector('#large').open")
    assert page.run(height) > 300
    assert page.run("document.querySelector('[data-figure=homology] svg')") is None
    page.click("#close")
    page.wait_for("document.querySelector('[data-figure=homology] svg') !== null")
    assert page.run(height) == 0
    assert page.errors() == []


def test_a_table_sorts_by_value_both_ways(page):
    rows = "#verdicts + div + .scroll tbody tr"
    column = f"[...document.querySelectorAll('{rows}')].map((row) => row.cells[4].dataset.key)"
    before = page.run(column)
    head = "#verdicts + div + .scroll th:nth-child(5) button"
    page.click(head)
    up = page.run(column)
    page.click(head)
    down = page.run(column)
    numbers = [float(text) for text in before if text]
    missing = [""] * (len(before) - len(numbers))
    assert len(set(numbers)) > 5
    assert before != up
    assert [float(text) for text in up if text] == sorted(numbers)
    assert up[len(numbers) :] == missing
    assert [float(text) for text in down if text] == sorted(numbers, reverse=True)
    assert down[len(numbers) :] == missing


SEEN = "[...document.querySelectorAll('{}')].filter((e) => e.getClientRects().length).length"


def test_a_model_is_hidden_in_charts_figures_and_tables(page):
    page.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    places = {
        where: (SEEN.format(f"{where} [data-model=one]"), SEEN.format(f"{where} [data-model=two]"))
        for where in ("#charts", "[data-figure=overview]", "table")
    }
    before = {where: [page.run(script) for script in pair] for where, pair in places.items()}
    assert min(number for pair in before.values() for number in pair) > 0
    page.click("[data-hides=model][data-value=one]")
    for where, (one, two) in places.items():
        assert page.run(one) == 0, where
        assert page.run(two) == before[where][1], where
    page.click("[data-hides=model][data-value=one]")
    assert {where: [page.run(script) for script in pair] for where, pair in places.items()} == before


def test_a_feature_and_a_subject_are_hidden_and_a_feature_is_added(page):
    charts = SEEN.format("#charts svg")
    before = page.run(charts)
    page.click("[data-feature=h0_total]")
    assert page.run(charts) == before - 1
    page.put("#more", page.run("document.querySelector('#more').options[1].value"), "change")
    assert page.run(charts) == before
    weights = SEEN.format("article[data-category=Weights]")
    assert page.run(weights) > 0
    page.click("[data-subject=Weights]")
    assert page.run(weights) == 0
    assert page.run(SEEN.format("article[data-category=Statistics]")) > 0


def test_rows_are_found_by_their_words(page):
    rows = SEEN.format("#verdicts + div + .scroll tbody tr")
    everything = page.run(rows)
    page.put("#search", "stable_rank", "input")
    assert 0 < page.run(rows) < everything


def test_nothing_is_wider_than_a_phone(finished, browser):
    browser.open(finished.results / "report.html", width=390, height=844)
    browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.errors() == []


def test_what_it_cost_and_how_to_rerun_it_are_told(page, finished):
    told = page.run(
        "document.querySelector('#workflow').innerText + document.querySelector('#rerun').innerText"
    )
    for rule in ("train", "weight_features", "correlations", "figures"):
        assert rule in told
    assert "git checkout" in told
    given = page.run("fetch(document.querySelector('#rerun a').href).then((response) => response.text())")
    assert given == (finished.results / "config.yaml").read_text()
