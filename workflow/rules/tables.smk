# The tables that every analysis reads: features, metrics, models, and what else is gathered from producers.

TABLES = f"{RUN}/tables"


localrules:
    vectors_table,
    metrics_table,
    models_table,


# A revision that serves another one's weights is no observation of its own.
LEFT_OUT = (
    of_every_model(DUPLICATES, PUBLISHED)
    if config["hub"]["duplicates"] == "leave_out"
    else []
)


# Tables that only gather the files of producers, and those files.
GATHERED = {
    "features": [
        *(
            path
            for source, models in MODELS_OF.items()
            for path in [
                *of_every_checkpoint(FEATURES, models, source=source),
                *of_every_model(DISTANCES, models, source=source),
            ]
        ),
        *of_every_model(TRAJECTORY_FEATURES, WITH_TRAJECTORY),
    ],
    "diagrams": [
        *of_every_checkpoint(DIAGRAMS, EMBEDDED, source="embeddings"),
        *of_every_checkpoint(DIAGRAMS, LANDSCAPED, source="landscape"),
    ],
    "last_diagrams": [
        DIAGRAMS.format(source=source, model=model, step=steps(model, source)[-1])
        for source, models in (
            ("weights", WITH_FEATURES),
            ("embeddings", EMBEDDED),
            ("landscape", LANDSCAPED),
        )
        for model in models
    ],
    "surfaces": of_every_checkpoint(SURFACE, LANDSCAPED, source="landscape"),
    "densities": of_every_checkpoint(DENSITY, LANDSCAPED, source="landscape"),
    "profiles": [
        *of_every_checkpoint(PROFILE, LANDSCAPED, source="landscape"),
        *of_every_model(PATH_PROFILES, WITH_PATH),
    ],
    "path_surfaces": of_every_model(PATH_SURFACE, WITH_PATH),
    "trajectories": of_every_model(TRAJECTORY, WITH_PATH),
}
# Every run has a features table; the others are made where there is something to gather.
GATHERED = {
    table: parts for table, parts in GATHERED.items() if parts or table == "features"
}


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
            code=fingerprint("gather.py"),
        message:
            "Gathering {params.table}"
        script:
            "../../scripts/gather.py"


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
        code=fingerprint("vectors.py"),
    message:
        "Persistence images and landscapes of the weights"
    script:
        "../../scripts/vectors.py"


rule metrics_table:
    input:
        metrics=[
            *of_every_checkpoint(TRAINING_METRICS, TRAINED),
            *of_every_checkpoint(EMBEDDING_METRICS, EMBEDDED, source="embeddings"),
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
        steps={name: MODELS[name].steps for name in TRAINED},
        # In a list, since Snakemake looks for wildcards in a text.
        harness=[config["metrics"]["harness"]],
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
        curves=list(CURVES.values()),
        logs=of_every_model(MODEL_LOG, CURVES),
    output:
        f"{TABLES}/models.parquet",
    log:
        f"{LOGS}/models_table.log",
    conda:
        "../../envs/toposcale.yaml"
    params:
        models={name: facts_of(name) for name in MODELS},
        with_weights=WITH_WEIGHTS,
        with_curve=list(CURVES),
        code=fingerprint("models_table.py"),
    message:
        "Listing the models"
    script:
        "../../scripts/models_table.py"
