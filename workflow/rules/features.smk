# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.

FEATURES = f"{RUN}/features/{{source}}/{{model}}/step-{{step}}.parquet"
DIAGRAMS = f"{RUN}/diagrams/{{source}}/{{model}}/step-{{step}}.parquet"
DISTANCES = f"{RUN}/distances/{{source}}/{{model}}.parquet"
VECTORS = f"{RUN}/vectors/{{source}}/{{model}}.parquet"
TRAJECTORY_FEATURES = f"{RUN}/features/trajectory/{{model}}.parquet"
EMBEDDING_METRICS = f"{RUN}/metrics/embeddings/{{model}}/step-{{step}}.parquet"

# Sources whose producers also write diagrams, which are compared from checkpoint to checkpoint, and the models of each.
MODELS_OF = {
    source: models
    for source, models in {"weights": WITH_FEATURES, **CHOSEN}.items()
    if models
}
# Models that leave sketches of their weights on the way.
WITH_TRAJECTORY = TRAINED if config["trajectory"]["enabled"] else []


localrules:
    monitored,


rule weight_features:
    input:
        checkpoint,
    output:
        features=FEATURES.replace("{source}", "weights"),
        diagrams=DIAGRAMS.replace("{source}", "weights"),
    log:
        f"{LOGS}/weight_features/{{model}}/step-{{step}}.log",
    wildcard_constraints:
        model=one_of(WITH_WEIGHTS),
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(30),
    params:
        settings=config["weights"],
        code=fingerprint("weight_features.py"),
    message:
        "Topology of the weights of {wildcards.model} at step {wildcards.step}"
    script:
        "../../scripts/weight_features.py"


rule monitored:
    input:
        unpack(monitored_snapshot),
    output:
        features=FEATURES.replace("{source}", "weights"),
        diagrams=DIAGRAMS.replace("{source}", "weights"),
    log:
        f"{LOGS}/monitored/{{model}}/step-{{step}}.log",
    wildcard_constraints:
        model=one_of(MONITORED),
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(500),
        runtime=on_attempt(5),
    params:
        code=fingerprint("monitored.py"),
    message:
        "What the monitor saw of {wildcards.model} at step {wildcards.step}"
    script:
        "../../scripts/monitored.py"


rule embeddings:
    input:
        checkpoint=checkpoint,
        corpus=rules.corpus.output.tokens,
    output:
        features=FEATURES.replace("{source}", "embeddings"),
        diagrams=DIAGRAMS.replace("{source}", "embeddings"),
        metrics=EMBEDDING_METRICS,
    log:
        f"{LOGS}/embeddings/{{model}}/step-{{step}}.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(60),
        gpu=1 if config["embeddings"]["device"] == "cuda" else 0,
    params:
        settings={
            key: value
            for key, value in config["embeddings"].items()
            if key not in ("enabled", "every")
        },
        code=fingerprint("embeddings.py"),
    message:
        "Embeddings and perplexity of {wildcards.model} at step {wildcards.step}"
    script:
        "../../scripts/embeddings.py"


rule diagram_distances:
    input:
        diagrams_of_model,
    output:
        distances=DISTANCES,
        vectors=VECTORS,
    log:
        f"{LOGS}/diagram_distances/{{source}}/{{model}}.log",
    wildcard_constraints:
        source=one_of(MODELS_OF),
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(30),
    params:
        steps=steps_of_source,
        code=fingerprint("diagram_distances.py"),
    message:
        "Distances between consecutive diagrams of {wildcards.model} ({wildcards.source})"
    script:
        "../../scripts/diagram_distances.py"
