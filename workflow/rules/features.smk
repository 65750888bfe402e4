# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.


rule weight_features:
    input:
        **RECIPES.inputs("weights"),
    output:
        **INPUTS.outputs("weights"),
    log:
        f"{PATHS.logs}/weight_features/{{model}}/{{checkpoints}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.with_weights),
    priority: MEASURED_FIRST
    group:
        INPUTS.group
    conda:
        "../../envs/toposcale.yaml"
    threads: config["weights"]["threads"]
    resources:
        mem_mb=by_size(1000, per_matrix=20),
        runtime=by_size(30, per_weight=15e-3),
    params:
        **RECIPES.params("weights"),
    message:
        f"Topology of the weights of {{wildcards.model}}, {PLAN.work['weights'].job_title}"
    script:
        "../../scripts/weight_features.py"


rule embeddings:
    input:
        **RECIPES.inputs("embeddings"),
    output:
        **INPUTS.outputs("embeddings"),
    log:
        f"{PATHS.logs}/embeddings/{{model}}/{{checkpoints}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.embedded),
    priority: MEASURED_FIRST
    group:
        INPUTS.group
    conda:
        "../../envs/toposcale.yaml"
    threads: config["embeddings"]["threads"]
    resources:
        mem_mb=by_size(4000, per_weight=8),
        runtime=by_size(60, per_weight=60e-3),
        gpu=1 if config["embeddings"]["device"] == "cuda" else 0,
    params:
        **RECIPES.params("embeddings"),
    message:
        f"Embeddings and perplexity of {{wildcards.model}}, {PLAN.work['embeddings'].job_title}"
    script:
        "../../scripts/embeddings.py"
