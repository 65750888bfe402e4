"""Facts of a run: what is known, from where, and what two sources say of one fact."""

import numpy as np
import pytest

from toposcale.forecasting import Provenance, RunFacts
from toposcale.io.errors import UserError

STATED = RunFacts("run", 1_000_000, warmup_steps=0)


def logged(**values):
    return RunFacts("").with_provenance(Provenance.LOGGED, **values)


def test_a_fact_is_unknown_without_a_value_and_zero_is_one():
    assert STATED.provenance("n_parameters") is STATED.provenance("warmup_steps") is Provenance.STATED
    for name in ("tokens_per_step", "final_step", "optimizer", "epochs"):
        assert STATED.provenance(name) is None
    assert logged(tokens_per_step=np.nan, final_step=None).provenance("tokens_per_step") is None


def test_the_first_source_of_a_fact_counts_and_each_fact_keeps_its_own():
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


def test_epochs_give_the_unique_tokens_only_where_the_tokens_are_known():
    whole = logged(tokens_per_step=100.0, final_step=40, epochs=8.0).with_unique_tokens()
    assert whole.unique_tokens == 500
    assert whole.provenance("unique_tokens") is Provenance.LOGGED
    assert logged(epochs=8.0).with_unique_tokens().provenance("unique_tokens") is None
