"""The range in which the false-positive rates of the tests were measured (`make nulls`, docs/statistics.md)."""

from collections.abc import Collection

import pandas as pd

PARAMETERS = (2_936, 300_808)
"""The smallest and the largest model."""
TOGETHER, BETWEEN = 5, 480
"""As many runs were tested together over their checkpoints, and between runs."""
MEASURED = f"measured at {PARAMETERS[0]:,} to {PARAMETERS[1]:,} parameters, up to {TOGETHER} runs together"


def outside(models: pd.DataFrame, tested: Collection[str], most_runs: int) -> str:
    """Describe which of the tested models lie outside of what was measured ("the sizes of 2 of 5 models"), else "".

    most_runs: `TOGETHER` or `BETWEEN`. An unknown size lies outside.
    """
    trainings = models[models["model"].isin(tested)]
    sizes = trainings["n_parameters"] if "n_parameters" in trainings else pd.Series(float("nan"), index=trainings.index)
    others = int((~sizes.astype(float).between(*PARAMETERS)).sum())
    differences = [f"the sizes of {others} of {len(trainings)} models"] if others else []
    if len(trainings) > most_runs:
        differences.append(f"{len(trainings)} runs together")
    return " and ".join(differences)
