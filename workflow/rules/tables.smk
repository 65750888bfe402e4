# The two tables that every analysis reads, features and metrics, and the list of models.

TABLES = f"{RUN}/tables"


localrules:
    features_table,
    diagrams_table,
    metrics_table,
    models_table,


# A revision that serves another one's weights is no observation of its own.
LEFT_OUT = (
    of_every_model(DUPLICATES, PUBLISHED)
    if config["hub"]["duplicates"] == "leave_out"
    else []
)


rule features_table:
    input:
        parts=[
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
        left_out=LEFT_OUT,
    output:
        f"{TABLES}/features.parquet",
    log:
        f"{LOGS}/features_table.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(10),
    params:
        table="features",
        code=fingerprint("gather.py"),
    message:
        "Gathering the features of every checkpoint"
    script:
        "../../scripts/gather.py"


use rule features_table as diagrams_table with:
    input:
        parts=[
            *of_every_checkpoint(DIAGRAMS, EMBEDDED, source="embeddings"),
            *of_every_checkpoint(DIAGRAMS, LANDSCAPED, source="landscape"),
        ],
        left_out=LEFT_OUT,
    output:
        f"{TABLES}/diagrams.parquet",
    log:
        f"{LOGS}/diagrams_table.log",
    params:
        table="diagrams",
        code=fingerprint("gather.py"),
    message:
        "Gathering the diagrams of embeddings and landscapes"


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
        left_out=LEFT_OUT,
    output:
        f"{TABLES}/metrics.parquet",
    log:
        f"{LOGS}/metrics_table.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(10),
    params:
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
        logs=of_every_model(MODEL_LOG, CURVES),
    output:
        f"{TABLES}/models.parquet",
    log:
        f"{LOGS}/models_table.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(500),
        runtime=on_attempt(5),
    params:
        models={
            name: {
                "family": model.family,
                "entry": model.entry,
                "seed": model.seed,
                "final_step": final_step(model),
                **{
                    key: model.settings.get(key)
                    for key in (
                        "d_model",
                        "n_layers",
                        "n_heads",
                        "tokens_per_step",
                        "n_parameters",
                    )
                },
            }
            for name, model in MODELS.items()
        },
        with_weights=WITH_WEIGHTS,
        trained_tokens_per_step=TRAINED_TOKENS_PER_STEP,
        code=fingerprint("models_table.py"),
    message:
        "Listing the models"
    script:
        "../../scripts/models_table.py"
