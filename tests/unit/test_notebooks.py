"""The example notebooks run from their first cell to their last, in this process."""

import ast

import nbformat
import pytest

from paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def run(path):
    """The variables that the cells of a notebook leave, and the value of the last line of each cell that shows one."""
    variables, shown = {"__name__": "__main__"}, []
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type != "code":
            continue
        body = ast.parse(cell.source).body
        if isinstance(body[-1], ast.Expr):
            body[-1] = ast.copy_location(ast.Assign([ast.Name("shown", ast.Store())], body[-1].value), body[-1])
        tree = ast.fix_missing_locations(ast.Module(body, []))
        exec(compile(tree, f"{path.name}, cell {number}", "exec"), variables)
        shown.append(variables.pop("shown", None))
    return variables, shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


def test_the_monitor_notebook_shows_features_correlations_and_advice(capsys):
    _, shown = run(ROOT / "examples" / "monitor.ipynb")
    features, correlations = (table for table in shown if table is not None)
    assert list(features.columns) == ["narrow", "wide"]
    assert features.loc["frobenius_norm"].gt(0).all()
    assert set(correlations.index) == {"narrow", "wide"}
    assert correlations["h0_total"].abs().le(1).all()
    said = capsys.readouterr().out
    assert "narrow: step 240 of 300 (80%)" in said
    assert "wide: step 240 of 300 (80%)" in said
    answers = [line for line in said.splitlines() if line.startswith("  => ")]
    assert len(answers) == 2
    assert not any("%, confident" in answer for answer in answers)
    assert all("No advice: " in answer or "not confident" in answer for answer in answers)


def test_the_decision_notebook_shows_a_forecast_whose_interval_holds_the_published_end(capsys):
    _, shown = run(ROOT / "examples" / "decision.ipynb")
    _, told, candidates, _, earlier = (value for value in shown if value is not None)
    assert told["forecast_low"] < 3.304 < told["forecast_high"]
    assert told["choice"] in set(candidates["candidate"])
    assert earlier["forecast_low"].lt(3.304).all()
    assert earlier["forecast_high"].gt(3.304).all()
    assert "  => " in capsys.readouterr().out
