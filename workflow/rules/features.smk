# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.


rule weight_features:
    input:
        checkpoints=INPUTS.checkpoints("weights"),
    output:
        features=PATHS.features.replace("{source}", "weights"),
        diagrams=PATHS.diagrams.replace("{source}", "weights"),
    log:
        f"{PATHS.logs}/weight_features/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.with_weights),
    conda:
        "../../envs/toposcale.yaml"
    threads: config["weights"]["threads"]
    resources:
        mem_mb=by_size(1000, per_matrix=20),
        runtime=by_size(30, per_weight=15e-3),
    params:
        settings=PLAN.settings["weights"],
        steps=INPUTS.steps("weights"),
        files=INPUTS.state_of_files("weights"),
        allow_missing=INPUTS.from_elsewhere,
        code=code_of("weight_features.py"),
    message:
        "Topology of the weights of {wildcards.model}, {wildcards.span}"
    script:
        "../../scripts/weight_features.py"


rule embeddings:
    input:
        checkpoints=INPUTS.checkpoints("embeddings"),
        corpus=rules.corpus.output.tokens,
    output:
        features=PATHS.features.replace("{source}", "embeddings"),
        diagrams=PATHS.diagrams.replace("{source}", "embeddings"),
        metrics=PATHS.embedding_metrics,
        clouds=PATHS.clouds,
    log:
        f"{PATHS.logs}/embeddings/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.embedded),
    conda:
        "../../envs/toposcale.yaml"
    threads: config["embeddings"]["threads"]
    resources:
        mem_mb=by_size(4000, per_weight=8),
        runtime=by_size(60, per_weight=60e-3),
        gpu=1 if config["embeddings"]["device"] == "cuda" else 0,
    params:
        settings=PLAN.settings["embeddings"],
        steps=INPUTS.steps("embeddings"),
        files=INPUTS.state_of_files("embeddings"),
        allow_missing=INPUTS.from_elsewhere,
        tokenizer=INPUTS.tokenizer,
        code=code_of("embeddings.py"),
    message:
        "Embeddings and perplexity of {wildcards.model}, {wildcards.span}"
    script:
        "../../scripts/embeddings.py"


rule ripser_check:
    input:
        checkpoint=lambda wildcards: INPUTS.weights(wildcards.model, plan.step_of(wildcards.span)),
        diagrams=lambda wildcards: PLAN.work["weights"].file(
            PATHS.diagrams, wildcards.model, plan.step_of(wildcards.span), source="weights"
        ),
    output:
        PATHS.ripser_check,
    log:
        f"{PATHS.logs}/ripser_check/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.with_weights),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=by_size(1000, per_matrix=20),
        runtime=by_size(30, per_weight=15e-3),
    params:
        settings={key: config["weights"][key] for key in ("max_points", "max_dimension", "seed")},
        steps=INPUTS.steps("weights"),
        code=code_of("ripser_check.py"),
    message:
        "Diagrams of {wildcards.model}, {wildcards.span}, compared with ripser"
    script:
        "../../scripts/ripser_check.py"


rule diagram_distances:
    input:
        lambda wildcards: PLAN.work[wildcards.source].files(PATHS.diagrams, [wildcards.model], source=wildcards.source),
    output:
        features=PATHS.distances,
    log:
        f"{PATHS.logs}/diagram_distances/{{source}}/{{model}}.log",
    wildcard_constraints:
        source=PLAN.one_of(PLAN.sources),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        steps=INPUTS.steps(),
        code=code_of("diagram_distances.py"),
    message:
        "Distances between consecutive diagrams of {wildcards.model} ({wildcards.source})"
    script:
        "../../scripts/diagram_distances.py"


rule divergences:
    input:
        lambda wildcards: PLAN.work["embeddings"].files(PATHS.clouds, [wildcards.model]),
    output:
        features=PATHS.divergences,
    log:
        f"{PATHS.logs}/divergences/{{model}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.embedded),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        steps=INPUTS.steps("embeddings"),
        repeats=config["embeddings"]["repeats"],
        code=code_of("divergences.py"),
    message:
        "Divergence between consecutive embeddings of {wildcards.model}"
    script:
        "../../scripts/divergences.py"
