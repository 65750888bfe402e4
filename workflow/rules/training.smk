# Models of kind gpt: trained one checkpoint a job, or one model a job. The checkpoints are the same bytes.

CHECKPOINT = f"{RUN}/checkpoints/{{model}}/step-{{step}}.safetensors"
OPTIMIZER_STATE = f"{RUN}/training/{{model}}/state-{{step}}.safetensors"
SKETCH = f"{RUN}/training/{{model}}/sketch-{{step}}.safetensors"
TRAINING_LOG = f"{RUN}/training/{{model}}/step-{{step}}.parquet"
TRAINING_METRICS = f"{RUN}/metrics/training/{{model}}/step-{{step}}.parquet"

ONE_JOB_A_CHECKPOINT = config["training"]["jobs"] == "checkpoint"
TRAIN_JOB = f"{LOGS}/train/{{model}}" + (".step-{step}" if ONE_JOB_A_CHECKPOINT else "")

# What shapes a trained model. `jobs` and `device` say how the work is done, `sketch` what is noted on the way.
TRAINING_SETTINGS = {
    key: value
    for key, value in config["training"].items()
    if key not in ("jobs", "device", "sketch")
}
TRAINED_TOKENS_PER_STEP = (
    config["training"]["batch_size"] * config["training"]["context"]
)


rule train:
    input:
        corpus=rules.corpus.output.tokens,
        checkpoint=previous(CHECKPOINT) if ONE_JOB_A_CHECKPOINT else [],
        state=previous(OPTIMIZER_STATE) if ONE_JOB_A_CHECKPOINT else [],
    output:
        checkpoint=trained(CHECKPOINT),
        log=trained(TRAINING_LOG),
        metrics=trained(TRAINING_METRICS),
        sketch=trained(SKETCH),
        # Twice the size of the weights, and needed by the next job alone.
        state=temp(OPTIMIZER_STATE) if ONE_JOB_A_CHECKPOINT else [],
    log:
        f"{TRAIN_JOB}.log",
    priority: longest_chain_first
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1500),
        runtime=on_attempt(60 if ONE_JOB_A_CHECKPOINT else 600),
        gpu=1 if config["training"]["device"] == "cuda" else 0,
    params:
        architecture=settings_of("d_model", "n_layers", "n_heads"),
        seed=seed_of,
        training=TRAINING_SETTINGS,
        sketch=config["training"]["sketch"],
        device=config["training"]["device"],
        steps=plan.checkpoint_steps(config["training"]),
        code=fingerprint("train.py"),
    message:
        "Training: {wildcards}"
    script:
        "../../scripts/train.py"


localrules:
    loss_table,
    training_log,


MODEL_LOG = f"{RUN}/training/{{model}}.parquet"
TRAINING_LOGS = of_every_model(MODEL_LOG, [*TRAINED, *MONITORED, *CURVES])
CURVE_METRICS = f"{RUN}/metrics/curves/{{model}}.parquet"


rule loss_table:
    input:
        loss_table_of,
    output:
        log=MODEL_LOG,
        metrics=CURVE_METRICS,
    log:
        f"{LOGS}/loss_table/{{model}}.log",
    wildcard_constraints:
        model=one_of(CURVES),
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(500),
        runtime=on_attempt(5),
    params:
        code=fingerprint("loss_table.py"),
    message:
        "Loss curve of {wildcards.model}"
    script:
        "../../scripts/loss_table.py"


rule training_log:
    input:
        parts=training_log_parts,
    output:
        MODEL_LOG,
    log:
        f"{LOGS}/training_log/{{model}}.log",
    wildcard_constraints:
        model=one_of([*TRAINED, *MONITORED]),
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(500),
        runtime=on_attempt(5),
    params:
        table="training",
        code=fingerprint("gather.py"),
    message:
        "Training log of {wildcards.model}"
    script:
        "../../scripts/gather.py"
