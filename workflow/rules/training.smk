# Models of kind gpt: trained one checkpoint a job, or one model a job. The checkpoints have the same bytes.


# rule train; with several lists of checkpoints and a job a model, also rule train_2 and so on.
for number, (outputs, models) in enumerate(producers.training_rules(PLAN.work["training"]).items(), 1):
    whole = bool(PLAN.work["training"].whole)
    checkpoints = producers.ALL if whole else "{checkpoints}"

    rule:
        name:
            f"train_{number}" if number > 1 else "train"
        input:
            **RECIPES.inputs("training"),
        output:
            checkpoints=[PATHS.checkpoint.replace("{checkpoints}", checkpoint) for checkpoint in outputs],
            log=PATHS.model_log if whole else PATHS.training_log,
            metrics=PATHS.training_metrics.replace("{checkpoints}", checkpoints),
            sketch=PATHS.sketch.replace("{checkpoints}", checkpoints) if PLAN.with_trajectory else [],
            # Twice the size of the weights, and needed by the next job alone.
            optimiser=[] if whole else temp(PATHS.optimiser),
        log:
            f"{PATHS.logs}/train/{{model}}/{checkpoints}.log",
        wildcard_constraints:
            model=PLAN.wildcard_regex(models),
        priority: lambda wildcards: PLAN.models[wildcards.model].remaining_cost(INPUTS.steps("training")(wildcards)[0])
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(1500),
            runtime=on_attempt(600 if whole else 60),
            gpu=1 if config["training"]["device"] == "cuda" else 0,
        params:
            **RECIPES.params("training"),
        message:
            "Training {wildcards.model}" + ("" if whole else ", {wildcards.checkpoints}")
        script:
            "../../scripts/train.py"
