# The configuration that was used, whole, and the pages that people open.


rule resolved_configuration:
    output:
        record=PATHS.record,
        progress=PATHS.progress,
    log:
        f"{PATHS.logs}/resolved_configuration.log",
    # First of all, so that what is made from here on has its record.
    priority: 1_000_000_000
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        config=config,
        progress=lambda wildcards: INPUTS.progress(),
    message:
        "The configuration with every default filled in: {output.record}"
    script:
        "../../scripts/resolved_configuration.py"


rule report:
    input:
        rules.tables.input,
        rules.figures.output,
        **{table: PATHS.table(table) for table in ("summary", "features", "metrics", "models", "warnings")},
        configuration=rules.resolved_configuration.output.record,
        corpus=rules.corpus.output.description if PLAN.reads_text else [],
        compared_with_ripser=INPUTS.compared_with_ripser,
        tables=[path for path in rules.tables.input if path.endswith(".parquet")],
        training=TABLES.files["training"],
        figures=[f"{PATHS.figures}/{name}.svg" for name in TABLES.figures],
        page=page_files("report"),
    output:
        page=PATHS.report,
        changes=PATHS.changes,
    log:
        f"{PATHS.logs}/report.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        logs=PATHS.logs,
        inputs=lambda _: DIGESTS.expected(TABLES.tables.values()),
        lock=str(ROOT / "requirements.lock"),
        code=code_of("report.py"),
    message:
        "Writing the report"
    script:
        "../../scripts/report.py"


rule explorer:
    input:
        **{table: PATHS.table(table) for table in ("features", "metrics", "models")},
        diagrams=[
            *INPUTS.parts("weights", PATHS.diagrams),
            *([PATHS.table("diagrams")] if "diagrams" in TABLES.tables else []),
        ],
        surfaces=PATHS.table("surfaces") if "surfaces" in TABLES.tables else [],
        page=page_files("explorer"),
    output:
        page=PATHS.explorer,
    log:
        f"{PATHS.logs}/explorer.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("explorer", "explorer.py"),
        run=config["run"],
    message:
        "Writing the explorer"
    script:
        "../../scripts/explorer.py"
