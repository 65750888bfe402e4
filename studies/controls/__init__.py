"""Controls of the studies of topology: a planted effect, a replication, predictions across settings, pooling, scale."""
