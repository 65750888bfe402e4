"""The decision between candidates whose forecasts are known."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from planted_laws import SIZES, law, run, wsd
from toposcale.forecasting.decision.candidates import (
    DRAWS,
    Candidate,
    CandidateKind,
    best_size,
    forecast_target_loss,
    weigh,
)
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.law import JointForecast
from toposcale.forecasting.runs.training_run import Target


class Known:
    """A law that gives planted losses and covariances."""

    def __init__(self, losses, covariance):
        self.losses, self.covariance = np.array(losses), np.array(covariance)

    def compare(self, targets, reference):
        return JointForecast(self.losses, self.covariance)


def named(*names):
    kinds = {name: CandidateKind.SCALE_UP if "scale up" in name else CandidateKind.CONTINUE for name in names}
    return [Candidate(kinds[name], name, Target(1.0, np.ones(2), 1), 1, 1.0) for name in names]


def test_weigh_two_independent_candidates():
    """N(3.0, 0.1^2) against N(3.1, 0.1^2): P = Phi(0.1 / (0.1 sqrt 2)) = 0.760."""
    decision = weigh(Known([3.0, 3.1], np.diag([0.01, 0.01])), named("continue", "scale up to b"))
    best, other = decision.candidates
    assert best.candidate.name == "continue"
    assert best.probability == pytest.approx(0.760, abs=0.02)
    # E[max(d, 0)] of d ~ N(-0.1, 0.02): 0.1414 phi(0.7071) - 0.1 (1 - Phi(0.7071)) = 0.0199
    assert best.expected_regret == pytest.approx(0.0199, abs=0.003)
    assert other.expected_regret - best.expected_regret == pytest.approx(0.1, abs=0.01)


def test_an_error_that_all_candidates_share_decides_nothing():
    shared = np.full((2, 2), 0.04) + np.diag([1e-6, 1e-6])
    best = weigh(Known([3.0, 3.1], shared), named("continue", "scale up to b")).best
    assert best.probability == pytest.approx(1.0)
    assert best.expected_regret == pytest.approx(0.0, abs=1e-9)


def test_weigh_gain_is_the_difference_to_continuing():
    """Var(a - b) = 0.04 + 0.09 - 2 x 0.03 = 0.07."""
    covariance = [[0.04, 0.03], [0.03, 0.09]]
    weighed = weigh(Known([3.0, 2.5], covariance), named("continue", "scale up to b")).candidates
    gain = {row.candidate.name: row.gain for row in weighed}
    assert gain["scale up to b"].value == pytest.approx(0.5)
    assert gain["scale up to b"].low == pytest.approx(0.5 - 1.96 * 0.07**0.5, abs=1e-4)
    assert gain["continue"].value == gain["continue"].low == gain["continue"].high == 0.0


class OfSizes:
    """A law that gives planted losses of sizes, 0 to n - 1, and their covariance, in whatever order they are asked for."""

    def __init__(self, losses, covariance):
        self.losses, self.covariance = np.array(losses), np.array(covariance)

    def compare(self, targets, reference):
        sizes = [int(target.n_parameters) for target in targets]
        return JointForecast(self.losses[sizes], self.covariance[np.ix_(sizes, sizes)])


def sized(*sizes):
    kinds = [CandidateKind.SCALE_UP if size else CandidateKind.CONTINUE for size in sizes]
    return [
        Candidate(kind, f"{size}" if size else "continue", Target(size, np.ones(2), 1), 1, 1.0)
        for kind, size in zip(kinds, sizes, strict=True)
    ]


def probabilities(law, *sizes):
    return {row.candidate.name: (row.probability, row.expected_regret) for row in weigh(law, sized(*sizes)).candidates}


def random_covariance(rng, n):
    factors = 0.1 * rng.standard_normal((n, n))
    return factors @ factors.T + 1e-4 * np.eye(n)


@pytest.mark.parametrize("seed", range(5))
def test_weigh_does_not_depend_on_the_order_of_candidates(seed):
    rng = np.random.default_rng(seed)
    law = OfSizes(2.5 + 0.05 * rng.standard_normal(4), random_covariance(rng, 4))
    usual = probabilities(law, 0, 1, 2, 3)
    for order in permutations(range(4)):
        assert probabilities(law, *order) == usual


@pytest.mark.parametrize("seed", range(20))
def test_weigh_with_a_hopeless_candidate_moves_no_other(seed):
    rng = np.random.default_rng(seed)
    law = OfSizes([2.5, *(2.5 + 0.05 * rng.standard_normal(2)), 9.0], random_covariance(rng, 4))
    without, with_it = probabilities(law, 0, 1, 2), probabilities(law, 0, 3, 1, 2)
    assert with_it.pop("3")[0] == 0
    assert with_it == without


def test_weigh_gives_the_probabilities_of_the_joint_forecast():
    """Of planted normal losses: no bias over 40 forecasts, and errors as large as those of so many draws."""
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        losses, covariance = 2.5 + 0.05 * rng.standard_normal(3), random_covariance(rng, 3)
        law = probabilities(OfSizes(losses, covariance), 0, 1, 2)
        for best in range(3):
            others = np.delete(np.eye(3), best, axis=0) - np.eye(3)[best]  # losses of the others less that of the best
            exact = multivariate_normal(-others @ losses, others @ covariance @ others.T).cdf(np.zeros(2))
            error = np.sqrt(max(exact * (1 - exact), 1e-4) / DRAWS)
            errors.append((law[f"{best}" if best else "continue"][0] - exact) / error)
    assert abs(np.mean(errors)) < 0.3
    assert 0.7 < np.std(errors) < 1.3


def test_starts_share_the_probability_to_stop():
    """Two starts that are as good as each other, both far better than continuing: which one is open, stopping is not."""
    decision = weigh(Known([3.0, 2.5, 2.5], np.diag([1e-4] * 3)), named("continue", "scale up to b", "scale up to c"))
    assert decision.scale_up_probability == pytest.approx(1.0)
    assert decision.best.probability == pytest.approx(0.5, abs=0.03)
    assert decision.best.candidate.from_scratch
    assert decision.best.expected_regret < 0.02


def test_the_step_of_a_target_loss():
    live = run("100M", 100_000_000, until=0.5)
    joint = Joint(check=False).fit(live, SIZES[1:])
    wanted = float(law(100_000_000, wsd(), [3700])[0])
    _, middle, early, late, _ = forecast_target_loss(joint, live, wanted)
    assert early <= middle <= late
    assert middle == pytest.approx(3700, abs=120)
    assert forecast_target_loss(joint, live, 0.5)[:4] == (None, np.inf, np.inf, np.inf)


def test_the_best_size_is_the_one_whose_forecast_is_the_lowest():
    """The planted law at equal compute, over the same sizes."""
    live, rest = run("100M", 100_000_000, until=0.3), 5e16
    joint = Joint(check=False).fit(live, [*SIZES, run("1600M", 1_600_000_000)])
    size, low, high = best_size(joint, live, rest)
    sizes = 100_000_000 * np.geomspace(1 / 4, 64, 33)
    losses = []
    for one in sizes:
        rates = wsd(int(rest / (6 * one * 500_000)))
        losses.append(float(law(one, rates, [len(rates) - 1])[0]))
    assert low <= size <= high
    assert low / 1.5 < sizes[int(np.argmin(losses))] < high * 1.5
