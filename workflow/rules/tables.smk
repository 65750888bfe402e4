# The tables that every analysis reads: features, metrics, models, and what else is gathered from producers.


# The rules are named after the tables: features_table and so on; `gathered` says which a run has.
for table in TABLES.gathered:

    rule:
        name:
            f"{table}_table"
        input:
            **TABLES.inputs(table),
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
        **TABLES.inputs("vectors"),
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
        **TABLES.inputs("metrics"),
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
        **TABLES.inputs("models"),
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
