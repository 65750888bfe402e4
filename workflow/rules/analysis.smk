# Analyses: from tables to tables. `ANALYSES` of `toposcale.analysis` and `toposcale.reproduction` list them.
ANALYSIS_SETTINGS = targets.analysis_settings(PLAN)


# rule correlations, rule scaling, rule transitions, rule early_stopping, rule forecasts, rule scores, rule decisions,
# rule comparison, rule claims, rule summary
for name, analysis in TABLES.analyses.items():

    rule:
        name:
            name
        input:
            **{table: TABLES.files[table] for table in analysis.reads},
        output:
            **twins(PATHS.tables, analysis.makes, "parquet", "csv"),
        log:
            f"{PATHS.logs}/{name}.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(2000),
            runtime=on_attempt(30),
        params:
            analysis=name,
            settings={key: ANALYSIS_SETTINGS[key] for key in analysis.settings},
            code=code_of("analyse.py", analysis.module),
        message:
            analysis.title
        script:
            "../../scripts/analyse.py"


rule warnings_table:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        manifests=INPUTS.manifests,
        corpus=rules.corpus.output.description if PLAN.runnable else [],
    output:
        **twins(PATHS.tables, ["warnings"], "parquet", "csv"),
    log:
        f"{PATHS.logs}/warnings_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        revisions=each(PATHS.revisions, PLAN.published),
        missing={name: dict(model.missing) for name, model in PLAN.models.items() if model.missing},
        not_runnable={name: model.not_runnable for name, model in PLAN.models.items() if model.not_runnable},
        leave_out=config["hub"]["duplicates"] == "leave_out",
        code=code_of("warnings_table.py"),
    message:
        "What to know before trusting a number"
    script:
        "../../scripts/warnings_table.py"


rule tables:
    input:
        PATHS.record,
        [path for table, path in TABLES.files.items() if table not in ("published", "training")],
        [f"{PATHS.tables}/{table}.csv" for table in TABLES.made],
        TABLES.files["training"],
        rules.landscape.input,
        rules.warnings_table.output,
