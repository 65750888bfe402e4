# What producers measure, gathered: the tables that every analysis and figure reads; and targets.


rule features_table:
    input:
        parts=INPUTS.features,
    output:
        PATHS.table("features"),
    log:
        f"{PATHS.logs}/features_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("features_table", "gather.py"),
        table="features",
    message:
        "Gathering {params.table}"
    script:
        "../../scripts/gather.py"


use rule features_table as diagrams_table with:
    input:
        parts=[*INPUTS.parts("embeddings", PATHS.diagrams), *INPUTS.parts("landscape", PATHS.diagrams)],
    output:
        PATHS.table("diagrams"),
    log:
        f"{PATHS.logs}/diagrams_table.log",
    params:
        **DIGESTS.params("diagrams_table", "gather.py"),
        table="diagrams",


use rule features_table as surfaces_table with:
    input:
        parts=INPUTS.parts("landscape", PATHS.surfaces),
    output:
        PATHS.table("surfaces"),
    log:
        f"{PATHS.logs}/surfaces_table.log",
    params:
        **DIGESTS.params("surfaces_table", "gather.py"),
        table="surfaces",


use rule features_table as densities_table with:
    input:
        parts=INPUTS.parts("landscape", PATHS.densities),
    output:
        PATHS.table("densities"),
    log:
        f"{PATHS.logs}/densities_table.log",
    params:
        **DIGESTS.params("densities_table", "gather.py"),
        table="densities",


use rule features_table as profiles_table with:
    input:
        parts=[*INPUTS.parts("landscape", PATHS.profiles), *files_of_models(PATHS.path_profiles, PLAN.with_path)],
    output:
        PATHS.table("profiles"),
    log:
        f"{PATHS.logs}/profiles_table.log",
    params:
        **DIGESTS.params("profiles_table", "gather.py"),
        table="profiles",


use rule features_table as path_surfaces_table with:
    input:
        parts=files_of_models(PATHS.path_surfaces, PLAN.with_path),
    output:
        PATHS.table("path_surfaces"),
    log:
        f"{PATHS.logs}/path_surfaces_table.log",
    params:
        **DIGESTS.params("path_surfaces_table", "gather.py"),
        table="path_surfaces",


use rule features_table as trajectories_table with:
    input:
        parts=files_of_models(PATHS.trajectories, PLAN.with_path),
    output:
        PATHS.table("trajectories"),
    log:
        f"{PATHS.logs}/trajectories_table.log",
    params:
        **DIGESTS.params("trajectories_table", "gather.py"),
        table="trajectories",


rule vectors_table:
    input:
        parts=INPUTS.parts("weights", PATHS.diagrams),
    output:
        vectors=PATHS.table("vectors"),
    log:
        f"{PATHS.logs}/vectors_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("vectors_table", "vectors.py"),
    message:
        "Persistence images and landscapes of the weights"
    script:
        "../../scripts/vectors.py"


rule metrics_table:
    input:
        parts=INPUTS.metrics,
        training=files_of_models(PATHS.model_log, PLAN.trained),
        harness=INPUTS.harness,
        manifests=INPUTS.manifests,
    output:
        metrics=PATHS.table("metrics"),
    log:
        f"{PATHS.logs}/metrics_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("metrics_table", "metrics_table.py"),
        models=list(PLAN.models),
        checkpoints={name: PLAN.models[name].steps for name in PLAN.trained},
        saved_losses=[row for model in PLAN.models.values() for row in model.saved_losses],
        # Functions, since Snakemake looks for wildcards in the texts of a list.
        harness=lambda wildcards: [config["metrics"]["harness"]],
        tasks=lambda wildcards: config["metrics"]["tasks"],
        evaluated=INPUTS.evaluated,
    message:
        "Gathering the metrics of every checkpoint"
    script:
        "../../scripts/metrics_table.py"


rule models_table:
    input:
        # Their size is the model's.
        checkpoints=[INPUTS.weights(name, PLAN.models[name].steps[-1]) for name in INPUTS.with_own_weights],
        sizes=INPUTS.manifests,
        curves=list(PLAN.loss_curves.values()),
        logs=files_of_models(PATHS.model_log, INPUTS.with_own_log),
        schedules=files_of_models(PATHS.schedule, PLAN.schedule_files),
    output:
        models=PATHS.table("models"),
        schedules=PATHS.table("schedules"),
    log:
        f"{PATHS.logs}/models_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("models_table", "models_table.py"),
        models={name: model.facts for name, model in PLAN.models.items()},
        with_weights=INPUTS.with_own_weights,
        with_curve=list(PLAN.loss_curves),
        with_log=INPUTS.with_own_log,
        with_schedule=list(PLAN.schedule_files),
    message:
        "Listing the models and their learning-rate schedules"
    script:
        "../../scripts/models_table.py"


rule warnings_table:
    input:
        manifests=INPUTS.manifests,
        corpus=[PATHS.corpus] if PLAN.reads_text else [],
        features=PATHS.table("features"),
        metrics=PATHS.table("metrics"),
    output:
        warnings=PATHS.table("warnings"),
        warnings_csv=PATHS.csv("warnings"),
    log:
        f"{PATHS.logs}/warnings_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("warnings_table", "warnings_table.py"),
        missing={name: dict(model.missing) for name, model in PLAN.models.items() if model.missing},
        unread_states={name: dict(model.unread_states) for name, model in PLAN.models.items() if model.unread_states},
    message:
        "What to know before trusting a number"
    script:
        "../../scripts/warnings_table.py"


rule table_csv:
    input:
        table=lambda wildcards: PATHS.table(wildcards.table),
    output:
        csv=PATHS.csv("{table}"),
    log:
        f"{PATHS.logs}/table_csv/{{table}}.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("table_csv", "table_csv.py"),
    message:
        "{output}"
    script:
        "../../scripts/table_csv.py"


rule measured:
    input:
        [PATHS.table(table) for table in ("features", "metrics", "models")],
        # No job reads these where the tables are there: one that was deleted is made again.
        lambda wildcards: DIGESTS.kept,


rule csv:
    input:
        expand(rules.table_csv.output, table=["features", "metrics", "models"]),
