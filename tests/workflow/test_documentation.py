"""The documentation names what a run produces, and its worked example does what it says."""

import re

import pandas as pd
import pytest

from paths import ROOT
from toposcale.figures import names

METHOD = (ROOT / "docs" / "method.md").read_text()
SUFFIXES = ("_z_permuted", "_z_gaussian", "_spread", "_scaled")


def documented(feature):
    """Whether docs/method.md has a feature in backticks; homology by h{k}_, suffixes by *_suffix."""
    for suffix in SUFFIXES:
        if feature.endswith(suffix):
            return f"`*{suffix}`" in METHOD and documented(feature.removesuffix(suffix))
    return f"`{feature}`" in METHOD or f"`{re.sub(r'^h[0-9]_', 'h{k}_', feature)}`" in METHOD


def test_every_feature_and_metric_with_a_name_is_in_the_method():
    statistics = [f"h0_{statistic}" for statistic in names._STATISTICS]
    known = [*names._PLAIN_FEATURES, names.WEIGHT_NORM, *statistics, *names._METRICS]
    known += [f"h1_total{suffix}" for suffix in names._NULLS]
    assert [name for name in known if not documented(name)] == []


def test_a_feature_that_is_not_described_would_be_found():
    assert not documented("h0_variance")
    assert not documented("kurtosis_scaled")


@pytest.mark.workflow
@pytest.mark.xdist_group("finished")
def test_every_feature_of_a_run_is_in_the_method(finished):
    tables = [
        pd.read_parquet(finished.results / "tables" / f"{name}.parquet") for name in ("features", "metrics")
    ]
    produced = {*tables[0]["feature"], *tables[1]["metric"]}
    assert len(produced) > 30
    assert sorted(name for name in produced if not documented(name)) == []
