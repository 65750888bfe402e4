# Models of kind gpt: trained one checkpoint a job, or one model a job. The checkpoints are the same bytes.

CHECKPOINT = f"{RUN}/checkpoints/{{model}}/step-{{step}}.safetensors"
OPTIMIZER_STATE = f"{RUN}/training/{{model}}/state-{{step}}.safetensors"
SKETCH = f"{RUN}/training/{{model}}/sketch-{{step}}.safetensors"
# Models that leave sketches of their weights on the way.
WITH_TRAJECTORY = TRAINED if config["trajectory"]["enabled"] else []
TRAINING_LOG = f"{RUN}/training/{{model}}/step-{{step}}.parquet"
TRAINING_METRICS = f"{RUN}/metrics/training/{{model}}/step-{{step}}.parquet"


for cut in CUTS["training"]:

    rule:
        name:
            f"train{cut.suffix}"
        input:
            corpus=rules.corpus.output.tokens,
            schedule=lambda wildcards: SCHEDULE_FILES.get(wildcards.model, []),
            checkpoint=[] if cut.is_by_model else previous(CHECKPOINT),
            state=[] if cut.is_by_model else previous(OPTIMIZER_STATE),
        output:
            checkpoint=cut.files(CHECKPOINT),
            log=cut.files(TRAINING_LOG),
            metrics=cut.files(TRAINING_METRICS),
            sketch=cut.files(SKETCH) if WITH_TRAJECTORY else [],
            # Twice the size of the weights, and needed by the next job alone.
            state=[] if cut.is_by_model else temp(OPTIMIZER_STATE),
        log:
            cut.name(f"{LOGS}/train/{{model}}") + ".log",
        wildcard_constraints:
            model=one_of(cut.models),
        priority: longest_chain_first
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(1500),
            runtime=on_attempt(600 if cut.is_by_model else 60),
            gpu=1 if config["training"]["device"] == "cuda" else 0,
        params:
            architecture=settings_of("d_model", "n_layers", "n_heads"),
            seed=lambda wildcards: MODELS[wildcards.model].seed,
            training=lambda wildcards: training_settings(
                MODELS[wildcards.model].training
            ),
            sketch=config["training"]["sketch"] if WITH_TRAJECTORY else {},
            device=config["training"]["device"],
            steps=cut.steps_of if cut.is_by_model else steps_of(),
            code=fingerprint("train.py"),
        message:
            f"Training {cut.where}"
        script:
            "../../scripts/train.py"


MODEL_LOG = f"{RUN}/training/{{model}}.parquet"
TRAINING_LOGS = of_every_model(MODEL_LOG, [*TRAINED, *MONITORED, *CURVES])
CURVE_METRICS = f"{RUN}/metrics/curves/{{model}}.parquet"


rule loss_table:
    input:
        lambda wildcards: CURVES[wildcards.model],
    output:
        log=MODEL_LOG,
        metrics=CURVE_METRICS,
    log:
        f"{LOGS}/loss_table/{{model}}.log",
    wildcard_constraints:
        model=one_of(CURVES),
    conda:
        "../../envs/toposcale.yaml"
    params:
        steps=steps_of(),
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
    params:
        table="training",
        steps=lambda wildcards: steps_by_folder(
            (TRAINING_LOG, [wildcards.model], "training")
        ),
        code=fingerprint("gather.py"),
    message:
        "Training log of {wildcards.model}"
    script:
        "../../scripts/gather.py"
