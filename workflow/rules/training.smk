# Models of kind gpt: trained one checkpoint a job, or one model a job. The checkpoints are the same bytes.

CHECKPOINT = f"{RUN}/checkpoints/{{model}}/step-{{step}}.safetensors"
OPTIMIZER_STATE = f"{RUN}/training/{{model}}/state-{{step}}.safetensors"
TRAINING_LOG = f"{RUN}/training/{{model}}/step-{{step}}.parquet"
TRAINING_METRICS = f"{RUN}/metrics/training/{{model}}/step-{{step}}.parquet"

ONE_JOB_A_CHECKPOINT = config["training"]["jobs"] == "checkpoint"
TRAIN_JOB = f"{LOGS}/train/{{model}}" + (".step-{step}" if ONE_JOB_A_CHECKPOINT else "")

# What shapes a trained model. `jobs` and `device` say how the work is done, not what comes out.
TRAINING_SETTINGS = {
    key: value
    for key, value in config["training"].items()
    if key not in ("jobs", "device")
}


rule train:
    input:
        corpus=rules.corpus.output.tokens,
        checkpoint=previous(CHECKPOINT) if ONE_JOB_A_CHECKPOINT else [],
        state=previous(OPTIMIZER_STATE) if ONE_JOB_A_CHECKPOINT else [],
    output:
        checkpoint=trained(CHECKPOINT),
        log=trained(TRAINING_LOG),
        metrics=trained(TRAINING_METRICS),
        # Twice the size of the weights, and needed by the next job alone.
        state=temp(OPTIMIZER_STATE) if ONE_JOB_A_CHECKPOINT else [],
    log:
        f"{TRAIN_JOB}.log",
    benchmark:
        f"{TRAIN_JOB}.benchmark.tsv"
    priority: longest_chain_first
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1500),
        runtime=on_attempt(60 if ONE_JOB_A_CHECKPOINT else 600),
        gpu=1 if config["training"]["device"] == "cuda" else 0,
    params:
        architecture=settings_of,
        seed=seed_of,
        training=TRAINING_SETTINGS,
        device=config["training"]["device"],
        steps=plan.checkpoint_steps(config["training"]),
        code=fingerprint("train.py"),
    message:
        "Training: {wildcards}"
    script:
        "../../scripts/train.py"


localrules:
    training_log,


TRAINING_LOGS = of_every_model(f"{RUN}/training/{{model}}.parquet", TRAINED)


rule training_log:
    input:
        parts=training_log_parts,
    output:
        f"{RUN}/training/{{model}}.parquet",
    log:
        f"{LOGS}/training_log/{{model}}.log",
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
