# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.

FEATURES = f"{RUN}/features/{{source}}/{{model}}/step-{{step}}.parquet"
DIAGRAMS = f"{RUN}/diagrams/{{source}}/{{model}}/step-{{step}}.parquet"
DISTANCES = f"{RUN}/distances/{{source}}/{{model}}.parquet"
TRAJECTORY_FEATURES = f"{RUN}/features/trajectory/{{model}}.parquet"
CLOUDS = f"{RUN}/clouds/{{model}}/step-{{step}}.safetensors"
DIVERGENCES = f"{RUN}/divergences/{{model}}.parquet"
EMBEDDING_METRICS = f"{RUN}/metrics/embeddings/{{model}}/step-{{step}}.parquet"

# The loss landscape writes more than features and diagrams.
SURFACE = f"{RUN}/landscape/surfaces/{{model}}/step-{{step}}.parquet"
DENSITY = f"{RUN}/landscape/densities/{{model}}/step-{{step}}.parquet"
PROFILE = f"{RUN}/landscape/profiles/{{model}}/step-{{step}}.parquet"
PATH_SURFACE = f"{RUN}/landscape/path_surfaces/{{model}}.parquet"
PATH_PROFILES = f"{RUN}/landscape/path_profiles/{{model}}.parquet"
TRAJECTORY = f"{RUN}/landscape/trajectories/{{model}}.parquet"

# Sources whose producers also write diagrams, which are compared from checkpoint to checkpoint, and the models of each.
MODELS_OF = {
    source: models
    for source, models in {"weights": WITH_FEATURES, **CHOSEN}.items()
    if models
}
# The trajectory's plane needs every checkpoint of a model at once: models trained here.
WITH_PATH = [model for model in TRAINED if LANDSCAPED]


for cut in CUTS["weights"]:

    rule:
        name:
            f"weight_features{cut.suffix}"
        input:
            checkpoints=checkpoints_of(cut),
        output:
            features=cut.files(FEATURES.replace("{source}", "weights")),
            diagrams=cut.files(DIAGRAMS.replace("{source}", "weights")),
        log:
            cut.name(f"{LOGS}/weight_features/{{model}}") + ".log",
        wildcard_constraints:
            model=one_of(cut.models),
        conda:
            "../../envs/toposcale.yaml"
        threads: config["weights"]["threads"]
        resources:
            mem_mb=by_size(1000, per_matrix=20),
            runtime=by_size(30, per_weight=15e-3),
        params:
            settings=without(config["weights"], "jobs", "distances", "threads"),
            steps=cut.steps_of,
            leave_gaps=not_made_here,
            files=files_of_user(checkpoints_of(cut)),
            code=fingerprint("weight_features.py"),
        message:
            f"Topology of the weights of {cut.where}"
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
    params:
        code=fingerprint("monitored.py"),
    message:
        "What the monitor saw of {wildcards.model} at step {wildcards.step}"
    script:
        "../../scripts/monitored.py"


for cut in CUTS["embeddings"]:

    rule:
        name:
            f"embeddings{cut.suffix}"
        input:
            checkpoints=checkpoints_of(cut),
            corpus=rules.corpus.output.tokens,
        output:
            features=cut.files(FEATURES.replace("{source}", "embeddings")),
            diagrams=cut.files(DIAGRAMS.replace("{source}", "embeddings")),
            metrics=cut.files(EMBEDDING_METRICS),
            clouds=cut.files(CLOUDS),
        log:
            cut.name(f"{LOGS}/embeddings/{{model}}") + ".log",
        wildcard_constraints:
            model=one_of(cut.models),
        conda:
            "../../envs/toposcale.yaml"
        threads: config["embeddings"]["threads"]
        resources:
            mem_mb=by_size(4000, per_weight=8),
            runtime=by_size(60, per_weight=60e-3),
            gpu=1 if config["embeddings"]["device"] == "cuda" else 0,
        params:
            settings=without(
                config["embeddings"],
                "enabled",
                "every",
                "jobs",
                "threads",
                "divergence",
            ),
            steps=cut.steps_of,
            leave_gaps=not_made_here,
            files=files_of_user(checkpoints_of(cut)),
            tokenizer=own_tokenizer,
            code=fingerprint("embeddings.py"),
        message:
            f"Embeddings and perplexity of {cut.where}"
        script:
            "../../scripts/embeddings.py"


rule diagram_distances:
    input:
        lambda wildcards: of_checkpoints(DIAGRAMS, **wildcards),
    output:
        DISTANCES,
    log:
        f"{LOGS}/diagram_distances/{{source}}/{{model}}.log",
    wildcard_constraints:
        source=one_of(MODELS_OF),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        steps=steps_of(),
        code=fingerprint("diagram_distances.py"),
    message:
        "Distances between consecutive diagrams of {wildcards.model} ({wildcards.source})"
    script:
        "../../scripts/diagram_distances.py"


rule divergences:
    input:
        clouds=lambda wildcards: expand(
            CLOUDS, step=steps(wildcards.model, "embeddings"), **wildcards
        ),
    output:
        DIVERGENCES,
    log:
        f"{LOGS}/divergences/{{model}}.log",
    wildcard_constraints:
        model=one_of(EMBEDDED),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        steps=steps_of("embeddings"),
        repeats=config["embeddings"]["repeats"],
        code=fingerprint("divergences.py"),
    message:
        "Divergence between consecutive embeddings of {wildcards.model}"
    script:
        "../../scripts/divergences.py"
