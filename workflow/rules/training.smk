# Models of kind gpt: trained one checkpoint a job, or one model a job. The checkpoints have the same bytes.
IS_WHOLE = bool(PLAN.work["training"].whole)
TRAINED = paths.ALL if IS_WHOLE else "{checkpoints}"

# A model a job, Snakemake wants a list of the checkpoints that the job makes, so models with different checkpoints have rules
# of their own: rule train, and, of a sweep over their number, rule train_2 and so on.
for rule_name, (outputs, models) in INPUTS.training_rules.items():

    rule:
        name:
            rule_name
        input:
            corpus=PATHS.tokens,
            schedule=lambda wildcards: files_of_models(PATHS.schedule, PLAN.schedule_files.keys() & {wildcards.model}),
            checkpoint=INPUTS.previous(PATHS.checkpoint),
            optimiser=INPUTS.previous(PATHS.optimiser),
        output:
            checkpoints=[PATHS.checkpoint.replace("{checkpoints}", checkpoint) for checkpoint in outputs],
            log=PATHS.model_log if IS_WHOLE else PATHS.training_log,
            metrics=PATHS.training_metrics.replace("{checkpoints}", TRAINED),
            sketch=PATHS.sketch.replace("{checkpoints}", TRAINED) if PLAN.with_trajectory else [],
            # Twice the size of the weights, and only the next job needs it.
            optimiser=[] if IS_WHOLE else temp(PATHS.optimiser),
        log:
            f"{PATHS.logs}/train/{{model}}/{TRAINED}.log",
        wildcard_constraints:
            model=PLAN.wildcard_regex(models),
        priority: lambda wildcards: PLAN.models[wildcards.model].remaining_cost(INPUTS.steps("training")(wildcards)[0])
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(1500),
            runtime=on_attempt(600 if IS_WHOLE else 60),
            gpu=int(config["training"]["device"] == "cuda"),
        params:
            **DIGESTS.params(rule_name, "train.py", jobs=PLAN.work["training"].jobs(models)),
            architecture=INPUTS.settings("d_model", "n_layers", "n_heads"),
            seed=lambda wildcards: PLAN.models[wildcards.model].seed,
            training=lambda wildcards: plan.training_settings(PLAN.models[wildcards.model].training),
            sketch=config["training"]["sketch"] if PLAN.with_trajectory else {},
            device=config["training"]["device"],
            steps=INPUTS.steps("training"),
        message:
            "Training {wildcards.model}" + ("" if IS_WHOLE else ", {wildcards.checkpoints}")
        script:
            "../../scripts/train.py"


rule training_log:
    input:
        parts=lambda wildcards: INPUTS.logs(wildcards.model),
    output:
        log=PATHS.model_log,
    log:
        f"{PATHS.logs}/training_log/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(sorted({*PLAN.trained, *PLAN.monitored} - PLAN.work["training"].whole)),
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params(
            "training_log",
            "gather.py",
            jobs=jobs_of_models(name for name in PLAN.trained if name not in PLAN.work["training"].whole),
        ),
        table="training",
    message:
        "Training log of {wildcards.model}"
    script:
        "../../scripts/gather.py"
