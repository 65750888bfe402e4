# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.


rule weight_features:
    input:
        unpack(INPUTS.inputs("weights")),
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
        **INPUTS.params("weights"),
    message:
        f"Topology of the weights of {{wildcards.model}}, {PLAN.work['weights'].job_title}"
    script:
        "../../scripts/weight_features.py"


rule embeddings:
    input:
        unpack(INPUTS.inputs("embeddings")),
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
        **INPUTS.params("embeddings"),
    message:
        f"Embeddings and perplexity of {{wildcards.model}}, {PLAN.work['embeddings'].job_title}"
    script:
        "../../scripts/embeddings.py"


rule diagram_distances:
    input:
        unpack(INPUTS.inputs("distances")),
    output:
        features=PATHS.distances,
    log:
        f"{PATHS.logs}/diagram_distances/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.moving),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        **INPUTS.params("distances"),
    message:
        "Distances between consecutive diagrams of {wildcards.model}"
    script:
        "../../scripts/diagram_distances.py"


rule divergences:
    input:
        unpack(INPUTS.inputs("divergences")),
    output:
        features=PATHS.divergences,
    log:
        f"{PATHS.logs}/divergences/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.embedded),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        **INPUTS.params("divergences"),
    message:
        "Divergence between consecutive embeddings of {wildcards.model}"
    script:
        "../../scripts/divergences.py"
