"""Scaling laws of every feature and metric at the final step."""

import numpy as np
import pandas as pd

from toposcale.analysis.series import SERIES_KEY, final_values, largest_family, whole_model
from toposcale.io import schemas
from toposcale.statistics import scaling
from toposcale.statistics.coefficients import correlation_p_value, spearman

_FITS = {"power_law": scaling.fit_power_law, "power_law_with_offset": scaling.fit_power_law_with_offset}


def scaling_tables(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Make the table scaling: both laws of every whole-model feature and metric (source "metric") in n_parameters.

    Models of one family are compared: of the one with the most sizes. Models of unknown size are left out.
    """
    rows = []
    sizes_of = largest_family(models)[["model", "n_parameters"]].dropna()
    final = final_values(whole_model(features), metrics).merge(sizes_of, on="model")
    finite = final[np.isfinite(final["value"])].sort_values(["n_parameters", "model"])
    for key, series in finite.groupby(SERIES_KEY, sort=True):
        sizes, values = (series[name].to_numpy(np.float64) for name in ("n_parameters", "value"))
        key_columns = dict(zip(SERIES_KEY, map(str, key), strict=True))
        trend = spearman(sizes, values)[0, 0] if len(sizes) > 1 else np.nan
        for law, fit_law in _FITS.items():
            p = float(correlation_p_value(trend, len(sizes)))
            row = {**key_columns, "law": law, "n_models": len(sizes), "spearman": trend, "p": p}
            try:
                rows.append(row | vars(fit_law(sizes, values)))
            except ValueError as error:
                rows.append(row | {"reason": str(error)})
    return {"scaling": schemas.TABLES["scaling"].frame(rows)}
