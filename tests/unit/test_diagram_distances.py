"""Distances between consecutive checkpoints."""

import numpy as np
import pytest

from toposcale.features import diagram_distances
from toposcale.io import tables

WHERE = {"model": "m", "source": "weights"}


def checkpoint(step, bars):
    return tables.diagram_rows({layer: [np.array(b) for b in dims] for layer, dims in bars.items()}, step=step, **WHERE)


def test_distances_by_hand():
    earlier = checkpoint(0, {"a": [[[0.0, 2.0]]], "b": [[[0.0, 1.0]], [[1.0, 1.5]]]})
    later = checkpoint(1, {"a": [[[0.0, 3.0]]], "b": [[[0.0, 1.0]]]})
    found = diagram_distances.distances(earlier, later)
    assert found["a"]["h0_wasserstein_1"] == 1
    assert found["a"]["h0_bottleneck"] == 1
    assert found["b"]["h0_wasserstein_2"] == 0
    # The bar [1, 1.5] is gone: it is matched with the diagonal, at half its length.
    assert found["b"]["h1_bottleneck"] == 0.25
    assert found["all"]["h0_wasserstein_1"] == 1
    assert found["all"]["h1_bottleneck"] == 0.25


def test_distances_a_checkpoint_is_no_distance_from_itself():
    table = checkpoint(0, {"a": [[[0.0, 2.0], [0.0, 1.0]], [[1.0, 1.5]]]})
    assert all(v == 0 for named in diagram_distances.distances(table, table).values() for v in named.values())


def test_distances_nan_weights_give_nan_distances():
    broken = checkpoint(1, {"a": [[[np.nan, np.nan]]]})
    healthy = checkpoint(0, {"a": [[[0.0, 1.0]]]})
    assert np.isnan(diagram_distances.distances(healthy, broken)["a"]["h0_wasserstein_1"])
    assert np.isnan(diagram_distances.distances(healthy, broken)["all"]["h0_bottleneck"])


def test_distances_one_entry_less_than_checkpoints():
    tables_ = [checkpoint(step, {"a": [[[0.0, 1.0 + step]]]}) for step in range(4)]
    found = diagram_distances.consecutive_distances(tables_)
    assert [named["a"]["h0_wasserstein_1"] for named in found] == [1, 1, 1]
    with pytest.warns(UserWarning, match="a single checkpoint has no"):
        assert diagram_distances.consecutive_distances(tables_[:1]) == []


def test_distances_bars_that_never_die_are_left_out():
    earlier = checkpoint(0, {"a": [[[0.0, np.inf], [1.0, 2.0]]]})
    later = checkpoint(1, {"a": [[[5.0, np.inf]]]})
    assert diagram_distances.distances(earlier, later)["a"]["h0_wasserstein_1"] == 0.5


def test_distances_embeddings_have_layer_of_whole_model_alone():
    earlier, later = checkpoint(0, {"all": [[[0.0, 2.0]]]}), checkpoint(1, {"all": [[[0.0, 3.0]]]})
    found = diagram_distances.distances(earlier, later)
    assert set(found) == {"all"}
    assert found["all"]["h0_wasserstein_1"] == 1
