"""The picture of an advice: from the command, as a file, and in a notebook."""

import numpy as np
import pytest

import toposcale
from toposcale.__main__ import main
from toposcale.forecasting import results

STEPS = np.arange(200, 6001, 200)
CURVE = {"step": STEPS, "loss": 2.0 + 40 * STEPS**-0.5}
GIVEN = {
    "n_parameters": 25e6,
    "tokens_per_step": 5e5,
    "schedule": {"shape": "cosine", "steps": 12000, "warmup_steps": 200},
}


@pytest.fixture(scope="module")
def advice():
    return toposcale.advise(CURVE, **GIVEN, name="a $ < b")


@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<?xml"), ("PNG", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_ending_tells_the_format_and_the_bytes_are_the_same(advice, tmp_path, ending, begins):
    for name in ("one", "other"):
        results.write(advice, tmp_path / f"{name}.{ending}")
    one, other = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "other"))
    assert one.startswith(begins)
    assert one == other


def test_another_suffix_is_refused(advice, tmp_path):
    with pytest.raises(toposcale.UserError, match=r"must be \.svg, \.png, \.pdf"):
        results.write(advice, tmp_path / "advice.gif")


def test_advice_in_a_notebook_has_picture_and_text(advice):
    page = advice._repr_html_()
    assert "<svg" in page
    assert "a $ &lt; b: step 6,000 of 12,000" in page
    assert repr(advice) == f"<Advice on a $ < b at step 6,000 of 12,000: {advice.sentence}>"


def test_a_run_without_advice_is_drawn_too():
    advice = toposcale.advise({"step": [1, 2, 3], "loss": [5.0, 4.0, 3.0]}, **GIVEN)
    assert advice.decision is None
    assert advice.plot().has_data()
    assert len(advice.to_frame()) == 0


def test_the_command_writes_it(tmp_path, capsys):
    curve = tmp_path / "losses.csv"
    curve.write_text("step,loss\n" + "".join(f"{step},{2 + 40 * step**-0.5}\n" for step in STEPS))
    arguments = [
        "--n-parameters",
        "25e6",
        "--tokens-per-step",
        "5e5",
        "--steps",
        "12000",
        "--plot",
        str(tmp_path / "a.svg"),
    ]
    assert main(["advise", str(curve), *arguments]) == 0
    assert (tmp_path / "a.svg").read_text().count("<svg") == 1
    assert capsys.readouterr().out
