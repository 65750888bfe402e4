# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.
# They are rule weight_features, rule embeddings and rule loss_landscape.
for kind, models, amounts, title in (
    (
        "weights",
        PLAN.with_weights,
        dict(
            mem_mb=by_size(1000, per_matrix=20),
            runtime=by_size(30, per_weight=15e-3),
        ),
        "Topology of the weights",
    ),
    (
        "embeddings",
        PLAN.embedded,
        dict(
            mem_mb=by_size(4000, per_weight=8),
            runtime=by_size(60, per_weight=60e-3),
        ),
        "Embeddings and perplexity",
    ),
    (
        "landscape",
        PLAN.landscaped,
        dict(
            mem_mb=on_attempt(4000),
            runtime=on_attempt(240),
        ),
        "Loss landscape",
    ),
):
    params = INPUTS.recipes[kind]
    rule_name = params.script.removesuffix(".py")

    rule:
        name:
            rule_name
        input:
            **RECIPES.inputs(kind),
        output:
            **INPUTS.outputs(kind),
        log:
            f"{PATHS.logs}/{rule_name}/{{model}}/{{checkpoints}}.log",
        wildcard_constraints:
            model=PLAN.wildcard_regex(models),
        priority: MEASURED_FIRST
        group:
            INPUTS.group
        conda:
            "../../envs/toposcale.yaml"
        threads: config[kind].get("threads", 1)
        resources:
            **amounts,
            gpu=int(config[kind].get("device") == "cuda"),
        params:
            **RECIPES.params(kind),
            script=params.script,
        message:
            f"{title} of {{wildcards.model}}, {PLAN.work[kind].job_title}"
        script:
            f"../../scripts/{params.script}"
