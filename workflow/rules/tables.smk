# The tables that every analysis reads: features, metrics, models, and what else is gathered from producers.


# The rules are named after the tables: features_table and so on; `gathered` says which a run has.
for table, parts in TABLES.gathered.items():

    rule:
        name:
            f"{table}_table"
        input:
            parts=[part.file for part in parts],
        output:
            PATHS.table(table),
        log:
            f"{PATHS.logs}/{table}_table.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(2000),
        params:
            **TABLES.params(table),
        message:
            "Gathering {params.table}"
        script:
            "../../scripts/gather.py"


rule measured:
    input:
        rules.features_table.output,
        PATHS.table("metrics"),
        PATHS.table("models"),


rule vectors_table:
    input:
        parts=[part.file for part in TABLES.recipes["vectors"].parts],
    output:
        PATHS.table("vectors"),
    log:
        f"{PATHS.logs}/vectors_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(60),
    params:
        **TABLES.params("vectors"),
    message:
        "Persistence images and landscapes of the weights"
    script:
        "../../scripts/vectors.py"


rule metrics_table:
    input:
        parts=[part.file for part in INPUTS.metrics],
        training=each(PATHS.model_log, PLAN.trained),
        tables=config["metrics"]["tables"],
        harness=INPUTS.harness,
        left_out=INPUTS.manifests if config["hub"]["duplicates"] == "leave_out" else [],
    output:
        PATHS.table("metrics"),
    log:
        f"{PATHS.logs}/metrics_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
    params:
        **TABLES.params("metrics"),
    message:
        "Gathering the metrics of every checkpoint"
    script:
        "../../scripts/metrics_table.py"


rule models_table:
    input:
        # Their size is the model's.
        checkpoints=[
            INPUTS.weights(model, PLAN.models[model].steps[-1])
            for model in PLAN.with_weights
            if model not in PLAN.published
        ],
        sizes=INPUTS.manifests,
        curves=list(PLAN.loss_curves.values()),
        logs=each(PATHS.model_log, [*PLAN.loss_curves, *PLAN.monitored]),
        schedule_files=list(PLAN.schedule_files.values()),
    output:
        models=PATHS.table("models"),
        schedules=PATHS.table("schedules"),
    log:
        f"{PATHS.logs}/models_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **TABLES.params("models"),
    message:
        "Listing the models and their plans"
    script:
        "../../scripts/models_table.py"


# The analyses write theirs: these are large, and made only where they are asked for.
rule table_csv:
    input:
        PATHS.table("{table}"),
    output:
        f"{PATHS.tables}/{{table}}.csv",
    log:
        f"{PATHS.logs}/table_csv/{{table}}.log",
    wildcard_constraints:
        table="|".join([*TABLES.gathered, "vectors", "metrics", "models", "schedules"]),
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
    params:
        inputs=lambda wildcards: TABLES.expected([wildcards.table]),
        code=code_of("table_csv.py"),
    message:
        "{output}"
    script:
        "../../scripts/table_csv.py"


rule csv:
    input:
        expand(rules.table_csv.output, table=["features", "metrics", "models"]),
