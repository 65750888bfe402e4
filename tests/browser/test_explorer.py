"""The explorer in a real browser: the slider moves everything, two models stand side by side, nothing is asked for."""

import csv
import io
import re

import pandas as pd
import pytest

import figure_tables
from toposcale.pages.explorer import explorer

pytestmark = pytest.mark.workflow
SIDES = ("left", "right")


def chart(side: str, kind: str) -> str:
    return f".panel[data-side={side}][data-kind={kind}] .chart"


def in_view(page, side: str, kind: str) -> None:
    """Charts are drawn when they come into view."""
    selector = chart(side, kind)
    page.run(f"document.querySelector('{selector}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    page.wait_for(f"Boolean(document.querySelector('{selector}').textContent || document.querySelector('canvas'))")
    page.wait_for(f"!document.querySelector('{selector}').data || document.querySelector('{selector}').dataset.drawn")


def shown(page, side: str, kind: str) -> list:
    """The numbers that a chart draws: x, y and z of each line."""
    in_view(page, side, kind)
    page.wait_for(f"Boolean(document.querySelector('{chart(side, kind)}').data)")
    traces = f"document.querySelector('{chart(side, kind)}').data"
    place = f"document.querySelector('{chart(side, kind)}').layout.shapes?.[0].x0"
    return page.run(f"[{traces}.map(({{x, y, z}}) => [x, y, z ?? null]), {place} ?? null]")


def move_to(page, place: int) -> None:
    page.put("#checkpoint", place, "input")
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def ready(page) -> None:
    page.wait_for("document.body.dataset.ready === 'yes'")


@pytest.fixture
def page(finished, browser):
    browser.open(finished.results / "explorer.html")
    ready(browser)
    return browser


def moving_surfaces() -> pd.DataFrame:
    """The surfaces of the last step, and at step 0 the same with every loss one and a half times as high and one more."""
    surfaces = figure_tables.surfaces_table()
    last = surfaces[surfaces["step"] == figure_tables.LAST_STEP]
    return pd.concat([last, last.assign(step=0, loss=last["loss"] * 1.5 + 1)])


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Writes a page from tables of five models and returns its path; `surfaces` may be left out."""

    def write(surfaces=None):
        path = tmp_path_factory.mktemp("explorer") / "explorer.html"
        tables = {
            "models": figure_tables.models_table(),
            "features": figure_tables.features_table(),
            "metrics": figure_tables.metrics_table(),
            "diagrams": figure_tables.diagrams_table(figure_tables.CHECKPOINTS),
        }
        path.write_text(explorer(run="made up", surfaces=surfaces, **tables))
        return path

    return write


def test_it_loads_without_an_error_and_asks_the_network_for_nothing(page):
    for side in SIDES:
        for kind in ("loss", "diagram", "surface"):
            in_view(page, side, kind)
    assert page.errors() == []
    assert page.requests() == []


def test_the_first_paint_comes_within_two_seconds(page):
    """Plotly and the data are unpacked after it."""
    page.wait_for("performance.getEntriesByName('first-contentful-paint').length === 1")
    paint = page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert 0 < paint < 2000


def test_the_slider_moves_diagrams_barcodes_and_curves_of_both_models(page):
    kinds = ("loss", "diagram", "barcode")
    move_to(page, 0)
    first = {(side, kind): shown(page, side, kind) for side in SIDES for kind in kinds}
    assert page.run("document.querySelector('#step').value") == "0"
    move_to(page, 5)
    assert page.run("document.querySelector('#step').value") == "40"
    for (side, kind), before in first.items():
        assert shown(page, side, kind) != before, (side, kind)
    page.put("#step", "3")  # there is no step 3: the last one before it is meant
    assert page.run("document.querySelector('#step').value") == "0"
    assert {key: shown(page, *key) for key in first} == first


def test_pointing_at_a_curve_says_the_value_of_the_table(page, finished):
    features = pd.read_parquet(finished.results / "tables" / "features.parquet")
    chosen = features.query(
        "model == 'one' and source == 'embeddings' and feature == 'h0_total' and layer == 'all'"
    ).sort_values("step")
    page.put("#source", "embeddings")
    page.wait_for("document.querySelector('#feature').value === 'h0_total'")
    drawn = shown(page, "left", "feature")[0][0]
    assert drawn[0] == list(chosen["step"])
    assert drawn[1] == pytest.approx(list(chosen["value"]), rel=1e-4)
    label = page.point_at(chart("left", "feature"), 0, 1)
    number = float(re.search(r"step 40: ([\d.]+)", label).group(1))
    assert number == pytest.approx(chosen["value"].iloc[1], rel=1e-3)


def test_arrow_keys_walk_along_a_curve(page):
    in_view(page, "left", "loss")
    page.run(f"document.querySelector('{chart('left', 'loss')}').focus()")
    for _ in range(2):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight")
    label = f"document.querySelector('{chart('left', 'loss')} .hoverlayer .hovertext')?.textContent"
    page.wait_for(f"({label} || '').includes('step 8:')")


def test_the_points_are_those_of_the_table(page, finished):
    file = finished.results / "diagrams" / "weights" / "two" / "all.parquet"
    rows = pd.read_parquet(file).query("step == 16")
    layer = rows["layer"].iloc[0]
    rows = rows[rows["layer"] == layer]
    page.put("#layer", layer)
    page.put("#step", "16")
    drawn = shown(page, "right", "diagram")[0]
    assert len(drawn) == rows["dimension"].nunique()
    for (births, deaths, _), (_, own) in zip(drawn, rows.groupby("dimension"), strict=True):
        assert sorted(births) == pytest.approx(sorted(own["birth"]), rel=1e-3)
        assert sorted(deaths) == pytest.approx(sorted(own["death"]), rel=1e-3)


def test_two_models_stand_side_by_side_and_either_can_be_changed(page):
    names = "[...document.querySelectorAll('.side b')].map((e) => e.textContent)"
    assert page.run(names) == ["one", "two"]
    left, right = (f"document.querySelector('.panel[data-side={s}]').getBoundingClientRect().x" for s in SIDES)
    assert page.run(left) < 640 <= page.run(right)
    before = shown(page, "right", "diagram")
    page.put("#right", 0)
    page.wait_for("document.querySelector('#right-name b').textContent === 'one'")
    assert shown(page, "right", "diagram") != before
    assert page.errors() == []


def test_source_layer_and_feature_can_be_chosen(page):
    before = {kind: shown(page, "left", kind) for kind in ("feature", "diagram", "loss")}
    page.put("#feature", "neural_persistence")
    assert shown(page, "left", "feature") != before["feature"]
    assert shown(page, "left", "diagram") == before["diagram"]
    page.put("#layer", "token_embedding.weight")
    page.wait_for("location.hash.includes('token_embedding')")
    assert shown(page, "left", "diagram") != before["diagram"]
    page.put("#source", "embeddings")
    page.wait_for("location.hash.includes('embeddings')")
    assert page.run("document.querySelector('#layer').value") == "all"
    assert "not computed" not in page.run("document.querySelector('[data-kind=diagram] > p').textContent")
    move_to(page, 1)
    assert page.run("document.querySelector('[data-kind=diagram] > p').textContent").startswith(
        "Shown for step 0: not computed at step 8."
    )
    assert page.errors() == []


def test_a_link_holds_what_is_shown(page, finished, browser):
    page.put("#left", 1)
    page.wait_for("document.querySelector('#left-name b').textContent === 'two'")
    page.put("#layer", "token_embedding.weight")
    page.wait_for("location.hash.includes('token_embedding')")
    page.put("#feature", "neural_persistence")
    page.put("#step", "16")
    page.put("#from", "8")
    link = page.run("location.href")
    before = shown(page, "left", "feature")
    browser.open(link)
    ready(browser)
    assert browser.run("location.href") == link
    chosen = "['left', 'layer', 'feature', 'step', 'from'].map((id) => document.querySelector('#' + id).value)"
    assert browser.run(chosen) == ["1", "token_embedding.weight", "neural_persistence", "16", "8"]
    assert shown(browser, "left", "feature") == before
    axis = f"document.querySelector('{chart('left', 'feature')}').layout.xaxis.range"
    assert browser.run(axis) == [8, 40]


def test_a_link_to_what_is_not_there_shows_what_is(finished, browser):
    browser.open((finished.results / "explorer.html").as_uri() + "#left=nobody&layer=none&step=many")
    ready(browser)
    assert browser.run("document.querySelector('#left-name b').textContent") == "one"
    assert browser.run("document.querySelector('#step').value") == "40"
    assert browser.errors() == []


def test_what_is_seen_is_exported_as_csv_and_png(page):
    in_view(page, "left", "loss")
    selector = chart("left", "loss")
    read = f"csvOf(document.querySelector('{selector}'))"
    header, *rows = csv.reader(io.StringIO(page.run(read)))
    assert header == ["series", "training step", "nats per token"]
    whole = shown(page, "left", "loss")[0]
    assert [(int(step), float(value)) for _, step, value in rows] == [
        pair for x, y, _ in whole for pair in zip(x, y, strict=True)
    ]
    hidden = f"Plotly.restyle(document.querySelector('{selector}'), {{visible: 'legendonly'}}, [0])"
    page.run(f"{hidden}.then(() => true)")  # the drawing itself refers to itself: it cannot be handed over
    page.put("#from", "8")
    page.wait_for(f"document.querySelector('{selector}').layout.xaxis.range?.[0] === 8")
    _, *fewer = csv.reader(io.StringIO(page.run(read)))
    assert {int(step) for _, step, _ in fewer} == {8, 16, 24, 32, 40}
    # A spreadsheet would run such a name.
    page.run(f"Plotly.restyle(document.querySelector('{selector}'), {{name: '=1+1'}}, [1]).then(() => true)")
    assert "'=1+1" in {name for name, *_ in csv.reader(io.StringIO(page.run(read)))}
    picture = page.run(f"Plotly.toImage(document.querySelector('{selector}'), {{format: 'png'}})")
    assert picture.startswith("data:image/png;base64,iVBOR")


def test_a_diagram_is_exported_with_its_births_and_deaths(page):
    births, deaths, _ = map(list, zip(*shown(page, "left", "diagram")[0], strict=True))
    text = page.run(f"csvOf(document.querySelector('{chart('left', 'diagram')}'))")
    header, *rows = csv.reader(io.StringIO(text))
    assert header == ["series", "birth", "death"]
    points = [pair for x, y in zip(births, deaths, strict=True) for pair in zip(x, y, strict=True)]
    assert [(float(birth), float(death)) for _, birth, death in rows] == pytest.approx(points)


def test_panels_of_surfaces_are_there_where_a_model_has_one(made_up, browser):
    heights = "[...document.querySelectorAll('[data-kind=tree], [data-kind=surface]')].map((e) => e.offsetHeight > 0)"
    browser.open(made_up())
    ready(browser)
    assert browser.run(heights) == [False] * 4
    assert "No loss surface was computed" in browser.run("document.body.innerText")
    assert browser.errors() == []
    surfaces = moving_surfaces()
    browser.open(made_up(surfaces))
    ready(browser)
    assert browser.run(heights) == [True] * 4
    [without] = {"left", "right"} - {
        side
        for side in ("left", "right")
        if browser.run(f"document.querySelector('#{side}-name b').textContent") in set(surfaces["model"])
    }
    in_view(browser, without, "surface")
    text = f"document.querySelector('[data-side={without}][data-kind=surface]').innerText"
    assert "No loss surface of" in browser.run(text)


def test_the_slider_moves_surface_and_merge_tree(made_up, browser):
    browser.open(made_up(moving_surfaces()))
    ready(browser)
    name = moving_surfaces()["model"].iloc[0]
    browser.put("#left", browser.run(f"run.models.findIndex((m) => m.name === '{name}')"))
    browser.wait_for(f"document.querySelector('#left-name b').textContent === '{name}'")
    move_to(browser, 0)
    first = {kind: shown(browser, "left", kind) for kind in ("tree", "surface")}
    move_to(browser, browser.run("+document.querySelector('#checkpoint').max"))
    last = {kind: shown(browser, "left", kind) for kind in first}
    (_, _, before), (_, _, after) = first["surface"][0][0], last["surface"][0][0]
    assert before[0] == pytest.approx([1.5 * loss + 1 for loss in after[0]], rel=1e-4)
    assert first["tree"] != last["tree"]
    assert browser.run(f"document.querySelector('{chart('left', 'surface')}').data[0].type") == "surface"
    assert browser.errors() == []
    assert browser.requests() == []


def test_charts_have_words_for_those_who_do_not_see_them(page):
    for kind in ("loss", "diagram"):
        in_view(page, "left", kind)
        label = page.run(f"document.querySelector('{chart('left', kind)}').getAttribute('aria-label')")
        assert "one" in label


def test_nothing_is_wider_than_a_phone(finished, browser):
    browser.open(finished.results / "explorer.html", width=390, height=844)
    ready(browser)
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.errors() == []
