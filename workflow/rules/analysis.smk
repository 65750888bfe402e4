# Analyses: from tables to tables. `ANALYSES` of `toposcale.analysis` and `toposcale.reproduction` list them.


# Each rule has the name of its analysis.
for name, analysis in TABLES.analyses.items():

    rule:
        name:
            name
        input:
            **TABLES.inputs(name),
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
            **TABLES.params(name),
        message:
            analysis.title
        script:
            "../../scripts/analyse.py"


rule warnings_table:
    input:
        **TABLES.inputs("warnings"),
        corpus=rules.corpus.output.description if PLAN.reads_text else [],
    output:
        **twins(PATHS.tables, ["warnings"], "parquet", "csv"),
    log:
        f"{PATHS.logs}/warnings_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **TABLES.params("warnings"),
        revisions=each(PATHS.revisions, PLAN.published),
    message:
        "What to know before trusting a number"
    script:
        "../../scripts/warnings_table.py"


# The last job where a table of an earlier run was made with something else: it fails unless Snakemake has made it again.
rule compared:
    input:
        [PATHS.table(table) for table in TABLES.with_digest],
    output:
        temp(touch(f"{PATHS.logs}/compared")),
    log:
        f"{PATHS.logs}/compared.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        inputs=lambda _: TABLES.expected(TABLES.with_digest),
    message:
        "Comparing what the tables were made with"
    script:
        "../../scripts/compared.py"


rule tables:
    input:
        PATHS.record,
        [path for table, path in TABLES.files.items() if table not in ("published", "training")],
        [f"{PATHS.tables}/{table}.csv" for table in TABLES.made],
        TABLES.files["training"],
        rules.landscape.input,
        rules.warnings_table.output,
