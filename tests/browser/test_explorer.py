"""The explorer in a real browser: the slider moves everything, two models stand side by side, nothing is asked for."""

import pandas as pd
import pytest

import figure_tables
from toposcale.pages.explorer import explorer

pytestmark = pytest.mark.xdist_group("finished")
SIDES = ("left", "right")


def move_to(page, place: int) -> None:
    page.put("#checkpoint", place, "input")


def drawn(page, side: str, kind: str) -> str:
    """What a panel shows, as text that differs where the picture differs."""
    return page.run(
        f"""(() => {{ const panel = document.querySelector('.panel[data-side={side}][data-kind={kind}]');
        const canvas = panel.querySelector('canvas');
        return panel.innerHTML + (canvas ? canvas.toDataURL() : ''); }})()"""
    )


@pytest.fixture
def page(finished, browser):
    browser.open(finished.results / "explorer.html")
    browser.wait_for("document.body.dataset.ready === 'yes'")
    return browser


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


def moving_surfaces() -> pd.DataFrame:
    """The surfaces of the last step, and at step 0 the same with every loss one higher."""
    surfaces = figure_tables.surfaces_table()
    last = surfaces[surfaces["step"] > 0]
    return pd.concat([last, last.assign(step=0, loss=last["loss"] * 1.5 + 1)])


def test_it_loads_without_an_error_and_asks_the_network_for_nothing(page):
    assert page.errors() == []
    assert page.requests() == []


def test_the_slider_moves_diagrams_barcodes_and_curves_of_both_models(page):
    move_to(page, 0)
    first = {
        (side, kind): drawn(page, side, kind) for side in SIDES for kind in ("loss", "diagram", "barcode")
    }
    assert page.run("document.querySelector('#step').value") == "step 0"
    move_to(page, 5)
    assert page.run("document.querySelector('#step').value") == "step 40"
    for (side, kind), before in first.items():
        assert drawn(page, side, kind) != before, (side, kind)
    move_to(page, 0)
    assert {key: drawn(page, *key) for key in first} == first


def test_the_points_are_those_of_the_table(page, finished):
    file = finished.results / "diagrams" / "weights" / "two" / "step-00000016.parquet"
    rows = pd.read_parquet(file)
    layer = rows["layer"].iloc[0]
    rows = rows[rows["layer"] == layer].sort_values(["dimension", "birth", "death"])
    page.put("#layer", layer)
    shown = page.run(f"bars(run.models[1], 'weights', '{layer}', 16).found")
    shown = pd.DataFrame(shown, columns=["dimension", "birth", "death"]).sort_values(
        list(rows[["dimension", "birth", "death"]])
    )
    assert list(shown["dimension"]) == list(rows["dimension"])
    for end in ("birth", "death"):
        assert shown[end].to_numpy() == pytest.approx(rows[end].to_numpy(), abs=1e-4)


def test_the_curve_is_that_of_the_table(page, finished):
    features = pd.read_parquet(finished.results / "tables" / "features.parquet")
    chosen = features.query(
        "model == 'one' and source == 'embeddings' and feature == 'h0_total' and layer == 'all'"
    )
    line = page.run(
        "(({steps, values}) => ({steps, values}))(line(run.models[0], 'embeddings', 'all', 'h0_total'))"
    )
    assert line["steps"] == list(chosen["step"])
    assert line["values"] == pytest.approx(list(chosen["value"]), rel=1e-6)


def test_two_models_stand_side_by_side_and_either_can_be_changed(page):
    names = "[...document.querySelectorAll('.side')].map((e) => e.textContent)"
    assert page.run(names) == ["one", "two"]
    left, right = (
        f"document.querySelector('.panel[data-side={s}]').getBoundingClientRect().x" for s in SIDES
    )
    assert page.run(left) < 640 <= page.run(right)
    before = drawn(page, "right", "diagram")
    page.put("#right", 0)
    assert page.run(names) == ["one", "one"]
    assert drawn(page, "right", "diagram") != before
    assert page.errors() == []


def test_source_layer_and_feature_can_be_chosen(page):
    before = {kind: drawn(page, "left", kind) for kind in ("feature", "diagram", "loss")}
    page.put("#feature", "neural_persistence")
    assert drawn(page, "left", "feature") != before["feature"]
    assert drawn(page, "left", "diagram") == before["diagram"]
    page.put("#layer", "token_embedding.weight")
    assert drawn(page, "left", "diagram") != before["diagram"]
    page.put("#source", "embeddings")
    assert page.run("document.querySelector('#layer').value") == "all"
    assert "Of step" not in page.run("document.querySelector('[data-kind=diagram] p').textContent")
    move_to(page, 1)
    assert page.run("document.querySelector('[data-kind=diagram] p').textContent").startswith(
        "Of step 0: none at 8."
    )
    assert page.errors() == []


def test_a_run_without_surfaces_says_so(made_up, browser):
    browser.open(made_up())
    browser.wait_for("document.body.dataset.ready === 'yes'")
    said = "document.querySelector('[data-side=right][data-kind=surface]').innerText"
    assert "No loss surface of xl-97k was computed in this run." in browser.run(said)
    assert browser.errors() == []


def test_the_slider_moves_surface_and_merge_tree(made_up, browser):
    browser.open(made_up(moving_surfaces()))
    browser.wait_for("document.body.dataset.ready === 'yes'")
    name = moving_surfaces()["model"].iloc[0]
    browser.put("#left", browser.run(f"run.models.findIndex((m) => m.name === '{name}')"))
    move_to(browser, 0)
    first = {kind: drawn(browser, "left", kind) for kind in ("tree", "surface")}
    move_to(browser, browser.run("+document.querySelector('#checkpoint').max"))
    for kind, before in first.items():
        assert drawn(browser, "left", kind) != before, kind
    assert browser.errors() == []
    assert browser.requests() == []


def test_nothing_is_wider_than_a_phone(finished, browser):
    browser.open(finished.results / "explorer.html", width=390, height=844)
    browser.wait_for("document.body.dataset.ready === 'yes'")
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.errors() == []
