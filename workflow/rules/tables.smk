# The tables that every analysis reads: features, metrics, models, and what else is gathered from producers.


# rule features_table, rule diagrams_table, rule surfaces_table, rule densities_table,
# rule profiles_table, rule path_surfaces_table, rule trajectories_table
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
            table=table,
            parts=INPUTS.digests(parts),
            code=code_of("gather.py"),
        message:
            "Gathering {params.table}"
        script:
            "../../scripts/gather.py"


rule measured:
    input:
        rules.features_table.output,
        PATHS.table("metrics"),
        PATHS.table("models"),


VECTORIZED = INPUTS.parts("weights", PATHS.diagrams)


rule vectors_table:
    input:
        parts=[part.file for part in VECTORIZED],
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
        parts=INPUTS.digests(VECTORIZED),
        code=code_of("vectors.py"),
    message:
        "Persistence images and landscapes of the weights"
    script:
        "../../scripts/vectors.py"


MEASURED_HERE = [
    *INPUTS.parts("training", PATHS.training_metrics),
    *INPUTS.parts("embeddings", PATHS.embedding_metrics),
]


rule metrics_table:
    input:
        parts=[part.file for part in MEASURED_HERE],
        metrics=[
            *INPUTS.monitored("metrics/monitor", PLAN.monitored),
            *each(PATHS.curve_metrics, PLAN.loss_curves),
        ],
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
        parts=INPUTS.digests(MEASURED_HERE),
        models=list(PLAN.models),
        checkpoints={name: PLAN.models[name].steps for name in PLAN.trained},
        # In a list, since Snakemake looks for wildcards in a text.
        harness=[config["metrics"]["harness"]],
        tasks=config["metrics"]["tasks"],
        evaluated={
            name: {key: model.settings[key] for key in ("repo", "revisions") if key in model.settings}
            for name, model in PLAN.models.items()
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
        models={name: model.facts for name, model in PLAN.models.items()},
        with_weights=[name for name in PLAN.with_weights if name not in PLAN.published],
        with_curve=list(PLAN.loss_curves),
        with_log=[*PLAN.loss_curves, *PLAN.monitored],
        code=code_of("models_table.py"),
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
        code=code_of("table_csv.py"),
    message:
        "{output}"
    script:
        "../../scripts/table_csv.py"


rule csv:
    input:
        expand(rules.table_csv.output, table=["features", "metrics", "models"]),
