# Producers: one job turns one (model, checkpoint) into feature rows and persistence diagrams.

FEATURES = f"{RUN}/features/{{source}}/{{model}}/{{span}}.parquet"
DIAGRAMS = f"{RUN}/diagrams/{{source}}/{{model}}/{{span}}.parquet"
DISTANCES = f"{RUN}/distances/{{source}}/{{model}}.parquet"
TRAJECTORY_FEATURES = f"{RUN}/features/trajectory/{{model}}.parquet"
RIPSER_CHECK = f"{RUN}/ripser/{{model}}/{{span}}.json"
CLOUDS = f"{RUN}/clouds/{{model}}/{{span}}.safetensors"
DIVERGENCES = f"{RUN}/divergences/{{model}}.parquet"
EMBEDDING_METRICS = f"{RUN}/metrics/embeddings/{{model}}/{{span}}.parquet"

# The loss landscape writes more than features and diagrams.
SURFACES = f"{RUN}/landscape/surfaces/{{model}}/{{span}}.parquet"
DENSITIES = f"{RUN}/landscape/densities/{{model}}/{{span}}.parquet"
PROFILES = f"{RUN}/landscape/profiles/{{model}}/{{span}}.parquet"
PATH_SURFACES = f"{RUN}/landscape/path_surfaces/{{model}}.parquet"
PATH_PROFILES = f"{RUN}/landscape/path_profiles/{{model}}.parquet"
TRAJECTORIES = f"{RUN}/landscape/trajectories/{{model}}.parquet"

# The trajectory's plane needs every checkpoint of a model at once: models trained here.
WITH_PATH = [model for model in TRAINED if LANDSCAPED]


rule weight_features:
    input:
        checkpoints=checkpoints_of("weights"),
    output:
        features=FEATURES.replace("{source}", "weights"),
        diagrams=DIAGRAMS.replace("{source}", "weights"),
    log:
        f"{LOGS}/weight_features/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=one_of(WITH_WEIGHTS),
    conda:
        "../../envs/toposcale.yaml"
    threads: config["weights"]["threads"]
    resources:
        mem_mb=by_size(1000, per_matrix=20),
        runtime=by_size(30, per_weight=15e-3),
    params:
        settings=SETTINGS["weights"],
        steps=steps_of("weights"),
        files=files_of_user(checkpoints_of("weights")),
        leave_gaps=not_made_here,
        code=code_of("weight_features.py"),
    message:
        "Topology of the weights of {wildcards.model}, {wildcards.span}"
    script:
        "../../scripts/weight_features.py"


rule embeddings:
    input:
        checkpoints=checkpoints_of("embeddings"),
        corpus=rules.corpus.output.tokens,
    output:
        features=FEATURES.replace("{source}", "embeddings"),
        diagrams=DIAGRAMS.replace("{source}", "embeddings"),
        metrics=EMBEDDING_METRICS,
        clouds=CLOUDS,
    log:
        f"{LOGS}/embeddings/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=one_of(EMBEDDED),
    conda:
        "../../envs/toposcale.yaml"
    threads: config["embeddings"]["threads"]
    resources:
        mem_mb=by_size(4000, per_weight=8),
        runtime=by_size(60, per_weight=60e-3),
        gpu=1 if config["embeddings"]["device"] == "cuda" else 0,
    params:
        settings=SETTINGS["embeddings"],
        steps=steps_of("embeddings"),
        files=files_of_user(checkpoints_of("embeddings")),
        leave_gaps=not_made_here,
        tokenizer=own_tokenizer,
        code=code_of("embeddings.py"),
    message:
        "Embeddings and perplexity of {wildcards.model}, {wildcards.span}"
    script:
        "../../scripts/embeddings.py"


# Of one model of the run a few diagrams are compared with ripser: of one that is trained here where there is one, else of
# one in a folder, else of a published one.
RIPSER_CHECKS = [
    RIPSER_CHECK.format(model=name, span=plan.span_of(MODELS[name].steps[-1]))
    for kind in (model_kinds.GPT, model_kinds.FOLDER, model_kinds.HUB)
    for name in names_of(kind)
    if "topology" in config["weights"]["features"]
][:1]


rule ripser_check:
    input:
        checkpoint=lambda wildcards: weights_of(wildcards.model, plan.step_of(wildcards.span)),
        diagrams=lambda wildcards: WORK["weights"].file(
            DIAGRAMS, wildcards.model, plan.step_of(wildcards.span), source="weights"
        ),
    output:
        RIPSER_CHECK,
    log:
        f"{LOGS}/ripser_check/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=one_of(WITH_WEIGHTS),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=by_size(1000, per_matrix=20),
        runtime=by_size(30, per_weight=15e-3),
    params:
        settings={key: config["weights"][key] for key in ("max_points", "max_dimension", "seed")},
        steps=steps_of("weights"),
        code=code_of("ripser_check.py"),
    message:
        "Diagrams of {wildcards.model}, {wildcards.span}, compared with ripser"
    script:
        "../../scripts/ripser_check.py"


rule diagram_distances:
    input:
        lambda wildcards: WORK[wildcards.source].files(DIAGRAMS, [wildcards.model], source=wildcards.source),
    output:
        features=DISTANCES,
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
        code=code_of("diagram_distances.py"),
    message:
        "Distances between consecutive diagrams of {wildcards.model} ({wildcards.source})"
    script:
        "../../scripts/diagram_distances.py"


rule divergences:
    input:
        lambda wildcards: WORK["embeddings"].files(CLOUDS, [wildcards.model]),
    output:
        features=DIVERGENCES,
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
        code=code_of("divergences.py"),
    message:
        "Divergence between consecutive embeddings of {wildcards.model}"
    script:
        "../../scripts/divergences.py"
