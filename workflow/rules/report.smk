# The configuration that was used, whole, and one page that holds every figure and table.

from toposcale.pages.listed import LISTED

CAPTION = str(HOME / "workflow/report/{name}.rst")


localrules:
    resolved_configuration,
    report,


rule resolved_configuration:
    output:
        f"{RUN}/config.yaml",
    log:
        f"{LOGS}/resolved_configuration.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=200,
        runtime=5,
    params:
        config=config,
    message:
        "The configuration with every default filled in: {output}"
    script:
        "../../scripts/resolved_configuration.py"


rule report:
    input:
        rules.tables.input,
        rules.figures.input,
        configuration=rules.resolved_configuration.output[0],
        corpus=rules.corpus.output.description,
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        models=rules.models_table.output[0],
        summary=rules.summary.output.summary,
        warnings=rules.warnings_table.output.warnings,
        comparison=rules.comparison.output.comparison,
        listings=expand(f"{TABLES}/{{table}}.parquet", table=LISTED),
        made=[path for path in rules.tables.input if path.endswith(".parquet")],
        figures=expand(f"{FIGURE}.svg", figure=DRAWN),
        captions=[
            *expand(CAPTION, name=["comparison", *LISTED]),
            *expand(CAPTION, name=[f"figures/{figure}" for figure in DRAWN]),
        ],
        page=page_files("report"),
    output:
        f"{RUN}/report.html",
    log:
        f"{LOGS}/report.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        snakefile=str(HOME / "Snakefile"),
        logs=LOGS,
        lock=str(HOME / "requirements.lock"),
        code=fingerprint("report.py"),
    message:
        "The report: {output}"
    script:
        "../../scripts/report.py"
