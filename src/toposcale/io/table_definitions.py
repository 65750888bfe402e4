"""What the tables hold: what a row is, its key and other columns; of analyses: `analysis_table_definitions`."""

from __future__ import annotations

from toposcale.io.table_schema import (
    BIRTH,
    DEATH,
    DIMENSION,
    FEATURE,
    LAYER,
    METRIC,
    MODEL,
    N_PARAMETERS,
    SOURCE,
    STEP,
    count,
    number,
    table,
    text,
)

DEFINITIONS = {
    "features": table(
        "every number that describes a checkpoint",
        (MODEL, STEP, SOURCE, LAYER, FEATURE),
        number("value", "value of the feature, in the unit that docs/method.md gives"),
    ),
    "diagrams": table("the bars of the persistence diagrams", (MODEL, STEP, SOURCE, LAYER, DIMENSION, BIRTH, DEATH)),
    "last_diagrams": table(
        "the same for the last checkpoint of every model, also for the weights",
        (MODEL, STEP, SOURCE, LAYER, DIMENSION, BIRTH, DEATH),
    ),
    "vectors": table(
        "persistence diagrams as vectors of one length",
        (
            MODEL,
            STEP,
            SOURCE,
            text("vector", "persistence_image or persistence_landscape"),
            count("index", "place in the vector"),
        ),
        number("value", "entry of the vector"),
    ),
    "metrics": table(
        "every number that measures the quality of a checkpoint",
        (MODEL, STEP, METRIC),
        number("value", "value of the metric; losses in nats per token"),
    ),
    "models": table(
        "the models of the run",
        (N_PARAMETERS, MODEL),
        MODEL,
        text("family", "family; its models differ in size"),
        text("entry", "entry of `models:` in the configuration; of a sweep, the size"),
        text("cell", "cell of the model: runs that differ by their seed alone"),
        count("seed", "seed of the training; of the run's random choices for models that were trained elsewhere"),
        N_PARAMETERS,
        count("d_model", "width, where it is known"),
        count("n_layers", "blocks, where they are known"),
        count("n_heads", "attention heads of a block, where they are known"),
        count("tokens_per_step", "tokens that a training step reads, where it is known"),
        count("final_step", "step at which the training ends"),
        number("learning_rate", "peak learning rate, of models trained here"),
        number("weight_decay", "weight decay, of models trained here"),
        count("batch_size", "windows of text in a batch, of models trained here"),
        count("warmup_steps", "steps over which the learning rate rises, where they are known"),
        text("shape", "shape of the learning-rate schedule, of models trained here"),
        number("data_fraction", "share of the training text that is read, of models trained here"),
        text("plan", "source of the learning rates up to the end (given, rows, recognised), or why they are not known"),
    ),
    "schedules": table(
        "the plans: the learning rate up to the end, in at most 2,000 rows for each model; linear in between",
        (MODEL, STEP),
        number("learning_rate", "learning rate of the update that follows the step"),
    ),
    "training": table(
        "training log of one model, one row for each logged step (training/{model}.parquet)",
        (STEP,),
        number("loss", "training loss of the step's batch, nats per token"),
        number("gradient_norm", "norm of the gradient before clipping"),
        number("learning_rate", "learning rate of the update that followed"),
    ),
    "surfaces": table(
        "loss surfaces around checkpoints",
        (
            MODEL,
            STEP,
            text("plane", "kind and extent of the plane: random_1, negative_0.3"),
            number("x", "distance along the first direction, weight units"),
            number("y", "distance along the second direction, weight units"),
        ),
        number("loss", "loss at the point"),
    ),
    "path_surfaces": table(
        "loss in the principal plane of the training trajectory, around the last checkpoint",
        (
            MODEL,
            STEP,
            number("x", "distance along the first principal direction, weight units"),
            number("y", "distance along the second principal direction, weight units"),
        ),
        number("loss", "loss at the point"),
    ),
    "trajectories": table(
        "the checkpoints in the principal plane of their training trajectory",
        (MODEL, STEP),
        number("x", "coordinate along the first principal direction, weight units"),
        number("y", "coordinate along the second principal direction, weight units"),
        number("distance", "distance of the checkpoint from the plane, weight units"),
    ),
    "densities": table(
        "spectral density of the Hessian",
        (MODEL, STEP, number("eigenvalue", "eigenvalue, loss per squared weight")),
        number("density", "smoothed density there"),
        number("standard_error", "standard error over the random probes"),
    ),
    "profiles": table(
        "landscape profiles: the mass of each sublevel component, level by level",
        (
            MODEL,
            STEP,
            text("direction", "where the loss was sampled: a plane, a line, or a ball and its bowl"),
            count("component", "sampled point of the minimum that names the component"),
            number("level", "loss"),
        ),
        number("mass", "share of all sampled points in the component at that level"),
    ),
}
