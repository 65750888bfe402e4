"""Facts of a run: what is known, from where, and what two sources say of one fact."""

import io
from dataclasses import replace

import numpy as np
import pytest

import toposcale
from paths import ROOT
from toposcale.__main__ import main
from toposcale.forecasting import Provenance, RunFacts
from toposcale.forecasting.decision.run_options import OPTIONS
from toposcale.forecasting.laws.priors import OPTIMIZER_OFFSETS
from toposcale.forecasting.runs.facts import FACTS, OPTIMIZERS, option
from toposcale.io.errors import UserError

CURVE = {"step": [100, 200, 400], "loss": [6.0, 5.0, 4.0]}

STATED = RunFacts("run", 1_000_000, warmup_steps=0)


def logged(**values):
    return RunFacts("").with_provenance(Provenance.LOGGED, **values)


def test_a_fact_is_unknown_without_a_value_and_zero_is_one():
    assert STATED.provenance("n_parameters") is STATED.provenance("warmup_steps") is Provenance.STATED
    for name in ("tokens_per_step", "final_step", "optimizer", "epochs"):
        assert STATED.provenance(name) is None
    assert logged(tokens_per_step=np.nan, final_step=None).provenance("tokens_per_step") is None


def test_merged_facts_have_the_first_source():
    assumed = RunFacts("").with_provenance(Provenance.ASSUMED, tokens_per_step=5.0, optimizer="adamw")
    facts = STATED.merged(logged(n_parameters=1_100_000, tokens_per_step=64.0, warmup_steps=9)).merged(assumed)
    assert (facts.model, facts.n_parameters, facts.tokens_per_step, facts.warmup_steps) == ("run", 1_000_000, 64.0, 0)
    sources = [facts.provenance(name) for name in ("n_parameters", "tokens_per_step", "optimizer")]
    assert sources == [Provenance.STATED, Provenance.LOGGED, Provenance.ASSUMED]
    assert list(facts.notes()) == ["64 tokens per step, as the log states"]


@pytest.mark.parametrize("n_parameters", [700_000, 1_300_000])
def test_two_sources_of_one_number_may_differ_by_rounding_alone(n_parameters):
    told = (
        rf"run: n_parameters \(--n-parameters\) is 1,000,000, but the log has {n_parameters:,}; leave the wrong one out"
    )
    with pytest.raises(UserError, match=told):
        STATED.merged(logged(n_parameters=n_parameters))
    assumed = RunFacts("").with_provenance(Provenance.ASSUMED, n_parameters=n_parameters)
    assert STATED.merged(assumed).n_parameters == 1_000_000


def test_with_unique_tokens_where_tokens_are_known():
    whole = logged(tokens_per_step=100.0, final_step=40, epochs=8.0).with_unique_tokens()
    assert whole.unique_tokens == 500
    assert whole.provenance("unique_tokens") is Provenance.LOGGED
    assert logged(epochs=8.0).with_unique_tokens().provenance("unique_tokens") is None


@pytest.mark.parametrize("command", ["advise", "curves"])
def test_facts_are_the_options_of_the_commands(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    assert all(option(name) in told and fact.alias in told for name, fact in OPTIONS.items())
    assert FACTS.items() <= OPTIONS.items()


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"optimizer": "adma"}, "optimizer: 'adma', but it is one of adamw, .*; did you mean adam?"),
        ({"schedule": "cosin", "steps": 9}, "cosin: neither a shape .* nor a file; did you mean cosine?"),
        ({"schedule": {"shape": "cosin", "steps": 9}}, "shape: 'cosin', but it is one of .*; did you mean cosine?"),
        (
            {"schedule": {"shape": "wsd", "steps": 9, "decay_star": 5}},
            "unknown field decay_star; .*; did you mean decay_start",
        ),
        ({"warmup_steps": "10%"}, "warmup_steps: '10%' is not a number, for example 2000"),
        ({"epochs": "10%"}, "epochs: '10%' is not a number, for example 4"),
        ({"loss_column": "train/ppl"}, "loss_column .*: train/ppl is a perplexity by its name"),
    ],
)
def test_facts_out_of_a_closed_list_are_refused_with_the_closest(facts, error):
    with pytest.raises(UserError, match=error):
        toposcale.advise(CURVE | {"train/ppl": [400, 150, 55]}, n_parameters=25e6, tokens_per_step=5e5, **facts)
    with pytest.raises(UserError, match=error):
        toposcale.compare_runs(CURVE | {"train/ppl": [400, 150, 55]}, CURVE, **facts)


def test_facts_that_advise_does_not_have_are_refused():
    with pytest.raises(TypeError, match=r"advise: no argument optimiser; did you mean optimizer\?"):
        toposcale.advise(CURVE, optimiser="adamw")
    with pytest.raises(TypeError, match=r"check_curve: no argument step_colum; did you mean step_column\?"):
        list(toposcale.check_curve(CURVE, "run", step_colum="it"))


@pytest.mark.parametrize("text", ["AdamW", "adam_w", "schedule free", "ScheduleFree", "Muon"])
def test_optimizers_are_known_in_any_case(text):
    advice = toposcale.advise(CURVE, n_parameters=25e6, tokens_per_step=5e5, steps=4000, optimizer=text)
    assert advice.run.facts.optimizer in OPTIMIZERS


def test_recipe_differences_are_the_facts_that_are_not_shared():
    facts = RunFacts("a", optimizer="adamw", weight_decay=0.0)
    assert facts.recipe_differences(replace(facts, model="b", aspect_ratio=64.0)) == []
    assert facts.recipe_differences(RunFacts("b", optimizer="adamw", weight_average="ema")) == [
        "weight_decay",
        "weight_average",
    ]
    assert RunFacts("a").recipe_differences(RunFacts("b")) == []


def test_optimizers_with_an_offset_are_in_the_list():
    assert OPTIMIZER_OFFSETS.keys() - {""} <= set(OPTIMIZERS)


def test_optimizers_are_those_of_the_page():
    page = (ROOT / "docs/forecasting.md").read_text()
    assert ", ".join(f"`{name}`" for name in OPTIMIZERS[:-1]) + " or `other`" in page


def test_check_reads_the_standard_input(monkeypatch, capsys):
    rows = "step,loss\n" + "".join(f"{step},{2 + 40 * step**-0.5}\n" for step in range(100, 3001, 100))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(rows.encode())))
    assert main(["check", "-"]) == 0
    assert capsys.readouterr().out.startswith("standard input: CSV separated by commas, 30 steps from 100 to 3,000")
