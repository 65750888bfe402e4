# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.


rule weight_features:
    input:
        checkpoints=INPUTS.checkpoints("weights"),
        fetched=INPUTS.fetched("weights"),
    output:
        features=PATHS.features.replace("{source}", "weights"),
        diagrams=PATHS.diagrams.replace("{source}", "weights"),
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
        mem_mb=INPUTS.by_size(1000, per_matrix=20),
        runtime=INPUTS.by_size(30, per_weight=15e-3),
    params:
        **DIGESTS.params("weight_features", "weight_features.py", jobs=PLAN.work["weights"].jobs(PLAN.with_weights)),
        settings=PLAN.settings["weights"],
        steps=INPUTS.steps("weights"),
        source=INPUTS.settings("repo", "revisions"),
        allow_missing=INPUTS.allow_missing,
        frozen=lambda wildcards: list(PLAN.models[wildcards.model].frozen),
    message:
        f"Topology of the weights of {{wildcards.model}}, {PLAN.work['weights'].job_title}"
    script:
        "../../scripts/weight_features.py"


rule embeddings:
    input:
        corpus=PATHS.tokens,
        checkpoints=INPUTS.checkpoints("embeddings"),
        fetched=INPUTS.fetched("embeddings"),
    output:
        features=PATHS.features.replace("{source}", "embeddings"),
        diagrams=PATHS.diagrams.replace("{source}", "embeddings"),
        metrics=PATHS.embedding_metrics,
        clouds=PATHS.clouds,
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
        mem_mb=INPUTS.by_size(4000, per_weight=8),
        runtime=INPUTS.by_size(60, per_weight=60e-3),
        gpu=int(config["embeddings"]["device"] == "cuda"),
    params:
        **DIGESTS.params("embeddings", "embeddings.py", jobs=PLAN.work["embeddings"].jobs()),
        settings=PLAN.settings["embeddings"],
        steps=INPUTS.steps("embeddings"),
        source=INPUTS.settings("repo", "revisions"),
        allow_missing=INPUTS.allow_missing,
        tokenizer=INPUTS.tokenizer,
    message:
        f"Embeddings and perplexity of {{wildcards.model}}, {PLAN.work['embeddings'].job_title}"
    script:
        "../../scripts/embeddings.py"


rule diagram_distances:
    input:
        **{source: INPUTS.of_model(source, PATHS.diagrams, models) for source, models in PLAN.compared.items()},
        clouds=INPUTS.of_model("embeddings", PATHS.clouds, PLAN.diverging),
        moved=INPUTS.moved_weights,
    output:
        features=PATHS.distances,
    log:
        f"{PATHS.logs}/diagram_distances/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.moving),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(60),
    params:
        **DIGESTS.params("diagram_distances", "diagram_distances.py", jobs=jobs_of_models(PLAN.moving)),
        steps=INPUTS.compared_steps,
        repeats=lambda wildcards: config["embeddings"]["repeats"] if wildcards.model in PLAN.diverging else 0,
    message:
        "Distances between consecutive checkpoints of {wildcards.model}"
    script:
        "../../scripts/diagram_distances.py"


rule trajectory:
    input:
        sketches=INPUTS.of_model("training", PATHS.sketch, PLAN.trained),
    output:
        features=PATHS.trajectory_features,
    log:
        f"{PATHS.logs}/trajectory/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.trained),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(60),
    params:
        **DIGESTS.params("trajectory", "trajectory.py", jobs=jobs_of_models(PLAN.with_trajectory)),
        window=config["trajectory"]["window"],
        steps=INPUTS.steps("training"),
    message:
        "Topology of the training trajectory of {wildcards.model}"
    script:
        "../../scripts/trajectory.py"
