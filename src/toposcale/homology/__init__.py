"""Persistent homology of weight matrices and point clouds: arrays in, arrays out."""

from toposcale.homology.diagrams import betti_curve, cloud_features, crocker, nan_features, summarize_diagram
from toposcale.homology.dimension import persistent_homology_dimension
from toposcale.homology.distances import diagram_distances
from toposcale.homology.neural_persistence import (
    deep_graph_persistence,
    neural_persistence,
    neural_persistence_of_tree,
    spanning_tree_weights,
    spatial_concentration,
    weight_variance,
)
from toposcale.homology.representations import representation_topology_divergence
from toposcale.homology.rips import (
    h0_lifetimes,
    mean_pairwise_distance,
    nearest_distances,
    pairwise_distances,
    rips_diagrams,
    spanning_tree_lengths,
)
from toposcale.homology.sampling import (
    SeedPart,
    null_z_scores,
    seeded_generator,
    seeded_number,
    spectrum_surrogate,
    subsample_rows,
    z_score,
)

# Names that only `toposcale.features` and tests use are not listed.
__all__ = [
    "betti_curve",
    "deep_graph_persistence",
    "diagram_distances",
    "h0_lifetimes",
    "nearest_distances",
    "neural_persistence",
    "persistent_homology_dimension",
    "representation_topology_divergence",
    "rips_diagrams",
    "spatial_concentration",
    "summarize_diagram",
    "weight_variance",
]
