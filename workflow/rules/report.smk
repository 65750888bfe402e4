# The configuration that was used, whole, and the pages that people open.


rule resolved_configuration:
    output:
        f"{RUN}/config.yaml",
    log:
        f"{LOGS}/resolved_configuration.log",
    # First of all, so that what is made from here on has its record.
    priority: 1_000_000_000
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        config=config,
        mark=str(recorded.mark(Path(RUN))),
    message:
        "The configuration with every default filled in: {output}"
    script:
        "../../scripts/resolved_configuration.py"


rule report:
    input:
        rules.tables.input,
        rules.figures.input,
        **{table: TABLE_FILES[table] for table in ("summary", "comparison", "features", "metrics", "models")},
        configuration=rules.resolved_configuration.output[0],
        corpus=rules.corpus.output.description if WITH_WEIGHTS else [],
        ripser=RIPSER_CHECKS,
        warnings=rules.warnings_table.output.warnings,
        made=[path for path in rules.tables.input if path.endswith(".parquet")],
        figures=expand(f"{FIGURE}.svg", figure=DRAWN),
        page=page_files("report"),
    output:
        page=f"{RUN}/report.html",
        changes=f"{RUN}/changes.patch",
    log:
        f"{LOGS}/report.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        logs=LOGS,
        lock=str(HOME / "requirements.lock"),
        code=code_of("report.py"),
    message:
        "Writing the report"
    script:
        "../../scripts/report.py"


rule explorer:
    input:
        **{table: TABLE_FILES[table] for table in ("features", "metrics", "models")},
        diagrams=[WORK["weights"].files(DIAGRAMS, source="weights"), TABLE_FILES.get("diagrams", [])],
        surfaces=TABLE_FILES.get("surfaces", []),
        page=page_files("explorer"),
    output:
        f"{RUN}/explorer.html",
    log:
        f"{LOGS}/explorer.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
    params:
        run=config["run"],
        code=code_of("explorer.py"),
    message:
        "Writing the explorer"
    script:
        "../../scripts/explorer.py"
