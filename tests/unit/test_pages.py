"""What the pages are made of, without a browser; tests/browser opens them."""

import base64
import gzip
import json
import re
import struct

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup

import figure_tables
from toposcale.figures import FIGURES, load, style
from toposcale.pages import explorer, provenance, report

ENTRY = FIGURES["homology"]._replace(title="A <title>")


def leave_cost(path, seconds, memory=120.5):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"wall_seconds": seconds, "cpu_seconds": seconds / 2, "peak_memory_mb": memory})
    )


def test_runtimes_are_added_up_by_rule_and_model(tmp_path):
    leave_cost(tmp_path / "train" / "one.step-00000000.cost.json", 2.0)
    leave_cost(tmp_path / "train" / "one.step-00000040.cost.json", 3.0, memory=130.0)
    leave_cost(tmp_path / "train" / "one.seed43.cost.json", 7.0)
    leave_cost(tmp_path / "diagram_distances" / "weights" / "one.cost.json", 0.2)
    leave_cost(tmp_path / "summary.cost.json", 0.5)
    table = provenance.runtimes(tmp_path, ["one", "one.seed43"]).set_index(["rule", "model"])
    train = table.loc[("train", "one")]
    assert (train["jobs"], train["wall_seconds"], train["longest_job_seconds"]) == (2, 5.0, 3.0)
    assert (train["cpu_seconds"], train["peak_memory_mb"]) == (2.5, 130.0)
    assert table.loc[("train", "one.seed43"), "wall_seconds"] == 7.0
    assert table.loc[("diagram_distances", "one"), "jobs"] == 1
    assert table.loc[("summary", ""), "wall_seconds"] == 0.5


def test_no_costs_are_an_empty_table(tmp_path):
    assert provenance.runtimes(tmp_path, []).empty


def test_how_to_rerun_names_every_revision_and_says_when_files_were_changed():
    stored = {"revision": "a" * 40, "versions": json.dumps({"numpy": "2.4"})}
    tables = {
        "features": stored,
        "metrics": stored,
        "summary": {"revision": "b" * 40 + "-dirty", "versions": json.dumps({"numpy": "2.5", "scipy": "1"})},
    }
    told = provenance.rerun(tables, run="mine", lock_name="requirements.lock", lock_hash="0" * 64)
    assert told["commands"].splitlines()[:2] == ["git checkout " + "a" * 40, "make run CONFIG=mine.yaml"]
    assert told["revisions"] == [("a" * 40, "features, metrics"), ("b" * 40 + "-dirty", "summary")]
    assert told["changed"]
    assert told["versions"] == [("numpy", "2.4 and 2.5"), ("scipy", "1")]
    assert not provenance.rerun({"features": stored}, run="mine", lock_name="x", lock_hash="0")["changed"]


def test_a_run_is_exact_only_of_one_clean_revision():
    def told(*revisions, patch=""):
        tables = {str(i): {"revision": one} for i, one in enumerate(revisions)}
        return provenance.rerun(tables, run="mine", lock_name="x", lock_hash="0", patch=patch)

    assert told("a" * 40)["exact"]
    assert not told("a" * 40, "b" * 40)["exact"]
    assert not told("unknown")["exact"]
    dirty = told("a" * 40 + "-dirty", patch="results/mine/changes.patch")
    assert not dirty["exact"]
    assert dirty["patch"] == "changes.patch"
    assert dirty["commands"].splitlines()[:2] == [
        "git checkout " + "a" * 40,
        "git apply results/mine/changes.patch",
    ]


@pytest.mark.parametrize(
    ("value", "text", "key"),
    [
        (1234567, "1,234,567", "1234567.0"),
        (np.float64(0.123456), "0.1235", "0.123456"),
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


def test_long_tables_are_listed_by_whole_models_and_say_how_many_rows_there_are():
    rows = pd.DataFrame(
        {"model": ["a", "a"], "layer": ["all", "wte"], "feature": ["h0_total"] * 2, "n": [1, 2]}
    )
    listed = report.listing("transitions", rows)
    assert listed.rows.to_dict("list") == {"model": ["a"], "feature": ["h0_total"], "n": [1]}
    assert listed.total == 2


def test_a_drawing_keeps_its_names_to_itself_and_marks_its_models(tmp_path):
    """Two figures in a page must not answer to each other's names."""
    tables = figure_tables.models_table(), figure_tables.features_table()
    figure = load("homology")(models=tables[0], features=tables[1])
    svg, png = style.save(figure, tmp_path / "homology")
    one = report.Picture("homology", ENTRY, svg.read_text(), png.read_bytes())
    drawn = report.drawing(one)
    names = set(re.findall(r'\bid="([^"]+)"', drawn))
    assert names
    assert all(name.startswith("homology-") for name in names)
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawn))
    assert used
    assert {first or second for first, second in used} <= names
    assert set(re.findall(r'data-model="([^"]+)"', drawn)) == set(figure_tables.SIZES)
    assert "A &lt;title&gt;" in drawn
    head = drawn[: drawn.index(">")]
    assert "aspect-ratio" in head
    assert " width=" not in head
    assert " height=" not in head


def test_a_drawing_that_is_too_large_is_put_in_as_its_png():
    svg = '<svg viewBox="0 0 1 1">' + " " * report.LARGEST_SVG + "</svg>"
    drawn = report.drawing(report.Picture("x", ENTRY._replace(title="X"), svg, b"png"))
    assert drawn == Markup('<img src="data:image/png;base64,{}" alt="X">').format(
        base64.b64encode(b"png").decode()
    )


def test_a_series_keeps_its_gaps():
    metrics = pd.DataFrame(
        {"model": "a", "step": [0, 1, 2], "metric": "training_loss", "value": [1.0, np.nan, np.inf]}
    )
    features = figure_tables.features_table()[:0]
    (found,) = report.series(features, metrics)
    assert found["lines"] == [{"name": "a", "steps": [0, 1, 2], "values": [1.0, None, None]}]


def unpacked(page):
    """The header and the arrays of an explorer."""
    text = re.search(r'<script type="text/plain" id="packed">([^<]+)<', page).group(1)
    data = gzip.decompress(base64.b64decode(text))
    (length,) = struct.unpack("<I", data[:4])
    header = json.loads(data[4 : 4 + length])
    kinds = {"u2": "<u2", "u4": "<u4", "f4": "<f4"}
    arrays = [
        np.frombuffer(data, kinds[kind], count, 4 + length + place) for kind, place, count in header["arrays"]
    ]
    return header, arrays


def explore(**changes):
    tables = {
        "models": figure_tables.models_table(),
        "features": figure_tables.features_table(),
        "metrics": figure_tables.metrics_table(),
        "diagrams": figure_tables.diagrams_table(),
    }
    return explorer.explorer(run="made up", **(tables | changes))


def test_every_bar_is_in_the_explorer_to_a_65534th_of_its_range():
    diagrams = figure_tables.diagrams_table()
    diagrams.loc[diagrams.index[0], "death"] = np.inf
    page = explore(diagrams=diagrams)
    header, arrays = unpacked(page)
    assert f"All {len(diagrams):,} bars" in page
    found = []
    for model in header["models"]:
        for part in model["diagrams"]:
            starts = arrays[part["starts"]]
            for k, step in enumerate(part["steps"]):
                chosen = slice(starts[k], starts[k + 1])
                ends = [arrays[part[end]][chosen].astype(float) for end in ("births", "deaths")]
                for codes in ends:
                    codes[codes > header["top"]] = np.inf
                scaled = [
                    part["low"] + codes / header["top"] * (part["high"] - part["low"]) for codes in ends
                ]
                found += [
                    (model["name"], step, part["dimension"], *pair) for pair in zip(*scaled, strict=True)
                ]
                assert part["counts"][k] == len(ends[0])
    columns = ["model", "step", "dimension", "birth", "death"]
    found = pd.DataFrame(found, columns=columns).sort_values(columns).reset_index(drop=True)
    expected = diagrams[columns].sort_values(columns).reset_index(drop=True)
    assert (found[columns[:3]] == expected[columns[:3]]).all(axis=None)
    for end in ("birth", "death"):
        ours, theirs = (np.sort(table[end].to_numpy()) for table in (found, expected))
        assert np.isinf(theirs).sum() == (end == "death")
        assert ours == pytest.approx(theirs, abs=diagrams["birth"].max() * 2 / header["top"])


def test_a_large_run_keeps_the_longest_bars_and_says_so():
    diagrams = figure_tables.diagrams_table()
    page = explore(diagrams=diagrams, most_bars=500)
    header, arrays = unpacked(page)
    kept = sum(len(arrays[part["births"]]) for model in header["models"] for part in model["diagrams"])
    assert 400 < kept <= 500
    assert f"{kept} of the {len(diagrams):,} bars" in page
    assert "Thinned" in page
    part = next(part for model in header["models"] for part in model["diagrams"] if part["dimension"] == 0)
    model = next(model for model in header["models"] if part in model["diagrams"])
    chosen = diagrams.query(f"model == '{model['name']}' and dimension == 0 and step == {part['steps'][0]}")
    longest = int(arrays[part["starts"]][1])
    assert part["counts"][0] == len(chosen) > longest
    deaths = part["low"] + arrays[part["deaths"]][:longest] / header["top"] * (part["high"] - part["low"])
    assert deaths == pytest.approx(np.sort(chosen["death"])[::-1][:longest], abs=1e-3)


def test_a_feature_that_was_not_computed_differs_from_one_that_is_no_number():
    features = figure_tables.features_table()
    one = features[
        (features["model"] == "tiny-3k") & (features["feature"] == "h0_total") & (features["layer"] == "all")
    ]
    features.loc[one.index[0], "value"] = np.nan
    features = features.drop(one.index[1])
    header, arrays = unpacked(explore(features=features))
    model = header["models"][0]
    assert model["name"] == "tiny-3k"
    key = next(
        k for k, key in enumerate(header["keys"]) if (key["feature"], key["layer"]) == ("h0_total", "all")
    )
    row = arrays[model["values"]].reshape(-1, len(model["steps"]))[model["keys"].index(key)]
    at = [model["steps"].index(step) for step in one["step"]]
    assert np.isnan(row[at[0]])
    assert np.isposinf(row[at[1]])
    assert row[at[2:]] == pytest.approx(one["value"].to_numpy()[2:], rel=1e-6)


def test_a_large_surface_is_thinned_and_its_merge_tree_is_whole():
    surfaces = figure_tables.surfaces_table()
    header, arrays = unpacked(explore(surfaces=surfaces))
    whole = header["models"][-1]["surfaces"][0]
    page = explore(surfaces=surfaces, most_losses=120)
    header, arrays = unpacked(page)
    thin = header["models"][-1]["surfaces"][0]
    assert "every second is drawn" in page
    assert (whole["width"], thin["width"], thin["height"]) == (21, 11, 11)
    assert len(arrays[thin["losses"]]) == 121
    assert (thin["minima"], thin["saddles"]) == (whole["minima"], whole["saddles"])
    assert whole["minima"] > 1


def test_the_explorer_is_the_same_text_for_the_same_tables():
    assert explore() == explore()
