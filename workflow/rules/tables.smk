# The tables that every analysis reads: features, metrics, models, and what else is gathered from producers.

TABLES = f"{RUN}/tables"


# A revision that serves another one's weights is no observation of its own.
LEFT_OUT = (
    of_every_model(DUPLICATES, PUBLISHED)
    if config["hub"]["duplicates"] == "leave_out"
    else []
)


# Tables that only gather the files of producers, by the rules features_table, diagrams_table and so on. For each table:
# what is asked of each (model, checkpoint), as arguments of `of_every_checkpoint`, and the files of each model.
GATHERED = {
    "features": (
        [(FEATURES, models, source) for source, models in MODELS_OF.items()],
        [
            *(
                path
                for source, models in MODELS_OF.items()
                if source != "weights" or config["weights"]["distances"]
                for path in of_every_model(DISTANCES, models, source=source)
            ),
            *of_every_model(TRAJECTORY_FEATURES, WITH_TRAJECTORY),
            *of_every_model(DIVERGENCES, DIVERGING),
        ],
    ),
    "diagrams": (
        [
            (DIAGRAMS, EMBEDDED, "embeddings"),
            (DIAGRAMS, LANDSCAPED, "landscape"),
        ],
        [],
    ),
    "last_diagrams": (
        [],
        [
            DIAGRAMS.format(source=source, model=model, step=steps(model, source)[-1])
            for source, models in (
                ("weights", WITH_FEATURES),
                ("embeddings", EMBEDDED),
                ("landscape", LANDSCAPED),
            )
            for model in models
        ],
    ),
    "surfaces": ([(SURFACE, LANDSCAPED, "landscape")], []),
    "densities": ([(DENSITY, LANDSCAPED, "landscape")], []),
    "profiles": (
        [(PROFILE, LANDSCAPED, "landscape")],
        of_every_model(PATH_PROFILES, WITH_PATH),
    ),
    "path_surfaces": ([], of_every_model(PATH_SURFACE, WITH_PATH)),
    "trajectories": ([], of_every_model(TRAJECTORY, WITH_PATH)),
}
# Every run has a features table; the others are made where there is something to gather.
GATHERED = {
    table: (kinds, own)
    for table, (kinds, own) in GATHERED.items()
    if table == "features" or own or any(models for _, models, _ in kinds)
}


for table, (kinds, own) in GATHERED.items():

    rule:
        name:
            f"{table}_table"
        input:
            parts=[path for kind in kinds for path in of_every_checkpoint(*kind)] + own,
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
            steps=steps_by_folder(*kinds),
            code=fingerprint("gather.py"),
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
        weight_diagrams,
    output:
        f"{TABLES}/vectors.parquet",
    log:
        f"{LOGS}/vectors_table.log",
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(60),
    params:
        steps=steps_by_folder((DIAGRAMS, WITH_FEATURES, "weights")),
        code=fingerprint("vectors.py"),
    message:
        "Persistence images and landscapes of the weights"
    script:
        "../../scripts/vectors.py"


METRIC_KINDS = [
    (TRAINING_METRICS, TRAINED, "training"),
    (EMBEDDING_METRICS, EMBEDDED, "embeddings"),
]


rule metrics_table:
    input:
        metrics=[
            *(path for kind in METRIC_KINDS for path in of_every_checkpoint(*kind)),
            *monitored_files("metrics/monitor"),
            *of_every_model(CURVE_METRICS, CURVES),
        ],
        training=of_every_model(MODEL_LOG, TRAINED),
        tables=config["metrics"]["tables"],
        harness=harness_files(),
        left_out=LEFT_OUT,
    output:
        f"{TABLES}/metrics.parquet",
    log:
        f"{LOGS}/metrics_table.log",
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
    params:
        models=list(MODELS),
        checkpoints={name: MODELS[name].steps for name in TRAINED},
        steps=steps_by_folder(*METRIC_KINDS),
        # In a list, since Snakemake looks for wildcards in a text.
        harness=[config["metrics"]["harness"]],
        tasks=config["metrics"]["tasks"],
        evaluated={
            name: {
                key: model.settings[key]
                for key in ("repo", "revisions")
                if key in model.settings
            }
            for name, model in MODELS.items()
            if config["metrics"]["harness"]
        },
        code=fingerprint("metrics_table.py"),
    message:
        "Gathering the metrics of every checkpoint"
    script:
        "../../scripts/metrics_table.py"


rule models_table:
    input:
        checkpoints=last_checkpoints,
        sizes=of_every_checkpoint(SIZE, PUBLISHED),
        curves=list(CURVES.values()),
        logs=of_every_model(MODEL_LOG, [*CURVES, *MONITORED]),
        schedule_files=list(SCHEDULE_FILES.values()),
    output:
        models=f"{TABLES}/models.parquet",
        schedules=f"{TABLES}/schedules.parquet",
    log:
        f"{LOGS}/models_table.log",
    conda:
        "../../envs/toposcale.yaml"
    params:
        models={name: facts_of(name) for name in MODELS},
        with_weights=[name for name in WITH_WEIGHTS if name not in PUBLISHED],
        with_curve=list(CURVES),
        with_log=[*CURVES, *MONITORED],
        code=fingerprint("models_table.py"),
    message:
        "Listing the models and their plans"
    script:
        "../../scripts/models_table.py"
