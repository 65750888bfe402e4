# The configuration that was used, whole, and one page that holds every figure and table.


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
        mem_mb=on_attempt(200),
        runtime=on_attempt(5),
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
    output:
        f"{RUN}/report.html",
    log:
        f"{LOGS}/report.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        snakefile=str(HOME / "Snakefile"),
    message:
        "The report: {output}"
    script:
        "../../scripts/report.py"
