# The tables that every analysis reads: features, metrics, models, and what else is gathered from producers.

TABLES = f"{RUN}/tables"
# A revision that serves another one's weights is not an independent observation.
LEFT_OUT = expand(DUPLICATES, model=PUBLISHED) if config["hub"]["duplicates"] == "leave_out" else []
# Diagrams of the last checkpoint of a model are shown of these sources.
LAST = [(source, model) for source in ("weights", "embeddings", "landscape") for model in WORK[source].steps]
# Sources whose diagrams are compared from checkpoint to checkpoint.
MOVING = [source for source in MODELS_OF if source != "weights" or config["weights"]["distances"]]
# Tables that only gather the files of producers, and these files.
GATHERED = {
    "features": [
        *(file for source in MODELS_OF for file in WORK[source].files(FEATURES, source=source)),
        *(file for source in MOVING for file in expand(DISTANCES, model=MODELS_OF[source], source=source)),
        *expand(TRAJECTORY_FEATURES, model=WITH_TRAJECTORY),
        *expand(DIVERGENCES, model=DIVERGING),
    ],
    "diagrams": WORK["embeddings"].files(DIAGRAMS, source="embeddings")
    + WORK["landscape"].files(DIAGRAMS, source="landscape"),
    "last_diagrams": [WORK[source].files(DIAGRAMS, [model], source=source)[-1] for source, model in LAST],
    "surfaces": WORK["landscape"].files(SURFACES),
    "densities": WORK["landscape"].files(DENSITIES),
    "profiles": WORK["landscape"].files(PROFILES) + expand(PATH_PROFILES, model=WITH_PATH),
    "path_surfaces": expand(PATH_SURFACES, model=WITH_PATH),
    "trajectories": expand(TRAJECTORIES, model=WITH_PATH),
}
# Every run has a features table; the others are made where there is something to gather.
GATHERED = {table: parts for table, parts in GATHERED.items() if parts or table == "features"}


# rule features_table, rule diagrams_table, rule last_diagrams_table, rule surfaces_table, rule densities_table,
# rule profiles_table, rule path_surfaces_table, rule trajectories_table
for table, parts in GATHERED.items():

    rule:
        name:
            f"{table}_table"
        input:
            parts=parts,
            left_out=LEFT_OUT,
        output:
            f"{TABLES}/{table}.parquet",
        log:
            f"{LOGS}/{table}_table.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(2000),
        params:
            table=table,
            # One job's file may hold all checkpoints: of each part, the step whose rows count.
            only=([WORK[source].steps[model][-1] for source, model in LAST] if table == "last_diagrams" else []),
            code=code_of("gather.py"),
        message:
            "Gathering {params.table}"
        script:
            "../../scripts/gather.py"


rule measured:
    input:
        rules.features_table.output,
        f"{TABLES}/metrics.parquet",
        f"{TABLES}/models.parquet",


rule vectors_table:
    input:
        WORK["weights"].files(DIAGRAMS, source="weights"),
    output:
        f"{TABLES}/vectors.parquet",
    log:
        f"{LOGS}/vectors_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(60),
    params:
        code=code_of("vectors.py"),
    message:
        "Persistence images and landscapes of the weights"
    script:
        "../../scripts/vectors.py"


rule metrics_table:
    input:
        metrics=[
            *WORK["training"].files(TRAINING_METRICS),
            *WORK["embeddings"].files(EMBEDDING_METRICS),
            *monitored_files("metrics/monitor"),
            *expand(CURVE_METRICS, model=CURVES),
        ],
        training=expand(MODEL_LOG, model=TRAINED),
        tables=config["metrics"]["tables"],
        harness=harness_files(),
        left_out=LEFT_OUT,
    output:
        f"{TABLES}/metrics.parquet",
    log:
        f"{LOGS}/metrics_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
    params:
        models=list(MODELS),
        checkpoints={name: MODELS[name].steps for name in TRAINED},
        # In a list, since Snakemake looks for wildcards in a text.
        harness=[config["metrics"]["harness"]],
        tasks=config["metrics"]["tasks"],
        evaluated={
            name: {key: model.settings[key] for key in ("repo", "revisions") if key in model.settings}
            for name, model in MODELS.items()
            if config["metrics"]["harness"]
        },
        code=code_of("metrics_table.py"),
    message:
        "Gathering the metrics of every checkpoint"
    script:
        "../../scripts/metrics_table.py"


rule models_table:
    input:
        # Their size is the model's.
        checkpoints=[weights_of(model, MODELS[model].steps[-1]) for model in WITH_WEIGHTS if model not in PUBLISHED],
        sizes=WORK["weights"].files(SIZE, PUBLISHED),
        curves=list(CURVES.values()),
        logs=expand(MODEL_LOG, model=[*CURVES, *MONITORED]),
        schedule_files=list(SCHEDULE_FILES.values()),
    output:
        models=f"{TABLES}/models.parquet",
        schedules=f"{TABLES}/schedules.parquet",
    log:
        f"{LOGS}/models_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        models={name: model.facts for name, model in MODELS.items()},
        with_weights=[name for name in WITH_WEIGHTS if name not in PUBLISHED],
        with_curve=list(CURVES),
        with_log=[*CURVES, *MONITORED],
        code=code_of("models_table.py"),
    message:
        "Listing the models and their plans"
    script:
        "../../scripts/models_table.py"
