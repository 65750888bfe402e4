"""The laws of the benchmark: each by the name of its row, a new one for each use."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from toposcale.forecasting.laws.annealing_area import AnnealingArea
from toposcale.forecasting.laws.baselines import LastValue, PurePowerLaw, SourcesChinchilla
from toposcale.forecasting.laws.collapse import Collapse
from toposcale.forecasting.laws.functional_scaling_law import FunctionalScalingLaw
from toposcale.forecasting.laws.law import Estimator
from toposcale.forecasting.laws.multi_power_law import MultiPowerLaw
from toposcale.forecasting.laws.one_run import OneRun
from toposcale.forecasting.laws.power_law import PowerLaw
from toposcale.forecasting.laws.prior_table import LearntJoint
from toposcale.forecasting.laws.published_law import PublishedLaw

JOINT = "joint"
CONTESTANTS: Mapping[str, Callable[[], Estimator]] = MappingProxyType(
    {
        JOINT: LearntJoint,
        "multi_power_law": lambda: OneRun(MultiPowerLaw()),
        "functional_scaling_law": lambda: OneRun(FunctionalScalingLaw()),
        "annealing_area": lambda: OneRun(AnnealingArea()),
        "collapse": lambda: OneRun(Collapse()),
        "power_law": lambda: OneRun(PowerLaw()),
        "power_law_without_offset": lambda: OneRun(PurePowerLaw()),
        "chinchilla_published": PublishedLaw,
        "chinchilla_fitted": SourcesChinchilla,
        "last_value": lambda: OneRun(LastValue()),
    }
)
"""Contestants in the order of the table. `joint` is the law of the program; the others know one run, or no curve."""

CHEAP = ("power_law", "power_law_without_offset", "chinchilla_published", "last_value")
"""Contestants that are judged in seconds, with a law of the user's also the first time."""
