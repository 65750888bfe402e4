"""Names of the metrics of a training, as in the metrics table and for people."""

TRAINING_LOSS = "training_loss"
VALIDATION_LOSS = "validation_loss"
PERPLEXITY = "perplexity"

LOSS_UNIT = "nats per token"
METRICS = {
    TRAINING_LOSS: ("training loss", LOSS_UNIT),
    VALIDATION_LOSS: ("validation loss", LOSS_UNIT),
    PERPLEXITY: ("perplexity", "per token"),
    "generalisation_gap": ("generalisation gap", LOSS_UNIT),
}
"""Display name and unit of a metric by its name in the table."""


def metric_name(metric: str) -> str:
    """Return the display name of a metric: `validation_loss` -> `validation loss`."""
    return METRICS[metric][0] if metric in METRICS else metric.replace("_", " ")
