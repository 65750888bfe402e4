# Models of kind gpt: trained one checkpoint a job, or one model a job. The checkpoints have the same bytes.

# A file for each checkpoint, whatever one job trains.
CHECKPOINT = f"{RUN}/checkpoints/{{model}}/{{span}}.safetensors"
OPTIMISER = f"{RUN}/optimisers/{{model}}/{{span}}.safetensors"
SKETCH = f"{RUN}/sketches/{{model}}/{{span}}.safetensors"
TRAINING_LOG = f"{RUN}/training/{{model}}/{{span}}.parquet"
# The whole log: gathered by the rule training_log, but for a job that trains a whole model, which writes it itself.
MODEL_LOG = f"{RUN}/training/{{model}}.parquet"
TRAINING_METRICS = f"{RUN}/metrics/training/{{model}}/{{span}}.parquet"
# Models that leave sketches of their weights on the way.
WITH_TRAJECTORY = TRAINED if config["trajectory"]["enabled"] else []


# rule train; with several lists of checkpoints and a job a model, also rule train_2 and so on.
for number, (span, made, models) in enumerate(plan.trainings(WORK["training"]), 1):
    whole = span == plan.ALL

    rule:
        name:
            f"train_{number}" if number > 1 else "train"
        input:
            corpus=rules.corpus.output.tokens,
            schedule=lambda wildcards: SCHEDULE_FILES.get(wildcards.model, []),
            checkpoint=[] if whole else previous(CHECKPOINT),
            optimiser=[] if whole else previous(OPTIMISER),
        output:
            checkpoints=[CHECKPOINT.replace("{span}", each) for each in made],
            log=MODEL_LOG if whole else TRAINING_LOG,
            metrics=TRAINING_METRICS.replace("{span}", span),
            sketch=SKETCH.replace("{span}", span) if WITH_TRAJECTORY else [],
            # Twice the size of the weights, and needed by the next job alone.
            optimiser=[] if whole else temp(OPTIMISER),
        log:
            f"{LOGS}/train/{{model}}/{span}.log",
        wildcard_constraints:
            model=one_of(models),
        priority: lambda wildcards: MODELS[wildcards.model].remaining_cost(steps_of("training")(wildcards)[0])
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(1500),
            runtime=on_attempt(600 if whole else 60),
            gpu=1 if config["training"]["device"] == "cuda" else 0,
        params:
            architecture=settings_of("d_model", "n_layers", "n_heads"),
            seed=lambda wildcards: MODELS[wildcards.model].seed,
            training=lambda wildcards: training_settings(MODELS[wildcards.model].training),
            sketch=config["training"]["sketch"] if WITH_TRAJECTORY else {},
            device=config["training"]["device"],
            steps=steps_of("training"),
            code=code_of("train.py"),
        message:
            "Training {wildcards.model}" + ("" if whole else ", {wildcards.span}")
        script:
            "../../scripts/train.py"


TRAINING_LOGS = expand(MODEL_LOG, model=[*TRAINED, *MONITORED, *CURVES])
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
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        steps=lambda wildcards: MODELS[wildcards.model].steps,
        code=code_of("loss_table.py"),
    message:
        "Loss curve of {wildcards.model}"
    script:
        "../../scripts/loss_table.py"


rule training_log:
    input:
        parts=lambda wildcards: files_so_far(wildcards.model)["training"],
    output:
        MODEL_LOG,
    log:
        f"{LOGS}/training_log/{{model}}.log",
    wildcard_constraints:
        model=one_of([model for model in [*TRAINED, *MONITORED] if model not in WORK["training"].whole]),
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        table="training",
        code=code_of("gather.py"),
    message:
        "Training log of {wildcards.model}"
    script:
        "../../scripts/gather.py"
