"""Every result as scientific Python has it: rows, plain JSON, axes, text, HTML, and one line as its repr."""

import json
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import toposcale
from paths import ROOT
from toposcale.__main__ import main
from toposcale.datasets import load_published_runs
from toposcale.datasets.benchmark import Benchmark, Setting, judge_all
from toposcale.datasets.contestants import CONTESTANTS
from toposcale.forecasting import Known
from toposcale.forecasting.results import Result, latex, write

CURVE = str(ROOT / "examples/losses.csv")
FACTS = {"n_parameters": 25e6, "tokens_per_step": 524288}
SCHEDULE = {"shape": "cosine", "steps": 24000, "warmup_steps": 2160, "final": 0.1}
RUN = {"curve": CURVE, "schedule": SCHEDULE, **FACTS}
MATRICES = [{f"layers.{i}.attn.weight": np.eye(4) + k * np.ones((4, 4)) for i in range(2)} for k in (0, 1)]


def benchmark():
    setting = Setting(load_published_runs("multi-power-law"), (0.5,), Known.ALONE)
    return Benchmark(judge_all({"power law": CONTESTANTS["power_law"]}, setting))


MADE = {
    "advise": lambda: toposcale.advise(**RUN, sizes=["100M"]),
    "compare_runs": lambda: toposcale.compare_runs(RUN, RUN | {"curve": str(ROOT / "examples/losses-wsd.csv")}),
    "check_curve": lambda: toposcale.check_curve(CURVE, "losses"),
    "test_metric": lambda: toposcale.test_metric(str(ROOT / "examples/metrics-wandb.csv"), "nuclear_norm"),
    "benchmark": benchmark,
    "describe": lambda: toposcale.describe(MATRICES[0]),
    "compare": lambda: toposcale.compare(*MATRICES),
}


@pytest.fixture(scope="module", params=MADE)
def result(request):
    return MADE[request.param]()


def test_result_is_rows_json_axes_text_and_html(result):
    frame = result.to_frame()
    assert type(frame) is pd.DataFrame
    assert len(pd.DataFrame(frame)) == len(frame) > 0
    assert json.loads(json.dumps(result.to_dict()))
    axes = result.plot()
    assert axes in axes.figure.axes
    title = axes.figure.get_suptitle()
    assert not title.endswith(".")
    assert len(title.split()) < 6
    mine = Figure().subplots()
    assert result.plot(ax=mine) is mine
    assert mine.has_data()
    assert "<" in result._repr_html_()
    assert "\n" in str(result)
    assert repr(result).startswith(f"<{type(result).__name__}")
    assert "\n" not in repr(result)
    if isinstance(result, Result):
        assert json.dumps(result.to_dict(), allow_nan=False)


def test_result_is_written_with_its_answer_as_the_title(result, tmp_path):
    if isinstance(result, Result):
        axes = write(result, tmp_path / "a.pdf")
        assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
        assert axes.figure.get_suptitle()
        with pytest.warns(DeprecationWarning, match="savefig"):
            result.plot(tmp_path / "b.svg")
        assert (tmp_path / "b.svg").exists()


def test_matrix_table_is_a_frame_and_what_is_taken_from_it_too():
    table = toposcale.describe(MATRICES[0])
    assert type(table[["frobenius_norm"]]) is pd.DataFrame
    assert table.to_frame().attrs["notes"] == table.attrs["notes"]
    assert len(table.plot(y="frobenius_norm").lines) == 1  # the picture of pandas


@pytest.mark.parametrize(
    "command",
    [
        ["check", CURVE],
        ["curves", CURVE, CURVE, "--n-parameters", "25e6", "--tokens-per-step", "524288"],
        ["test-metric", str(ROOT / "examples/metrics-wandb.csv"), "--metric", "nuclear_norm"],
        ["describe", "model.safetensors"],
    ],
    ids=lambda command: command[0],
)
def test_commands_print_their_table_in_three_forms(command, tmp_path, monkeypatch, capsys):
    from safetensors.numpy import save_file

    monkeypatch.chdir(tmp_path)
    save_file({"a_b.weight": np.eye(4, dtype=np.float32)}, "model.safetensors")
    assert main([*command, "--csv"]) == 0
    table = pd.read_csv(StringIO(capsys.readouterr().out))
    assert len(table.columns) > 2
    assert len(table)
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main([*command, "--latex"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(r"\begin{tabular}")
    assert lines[-1] == r"\end{tabular}"
    assert r"_" not in "".join(lines).replace(r"\_", "")


def test_latex_prints_steps_in_full():
    table = pd.DataFrame({"step": [23_904.0, np.nan], "value": [-0.0385210, np.inf], "flop": [2.0**80, 0.5]})
    rows = [row.replace(" ", "") for row in latex(table).splitlines()]
    assert r"23904&-0.03852&1.209e+24\\" in rows
    assert r"&inf&0.5\\" in rows
