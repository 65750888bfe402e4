# Tables: features, metrics, models and what else is gathered from producers; then the analyses, from tables to tables.
# `ANALYSES` of `toposcale.analysis` and `toposcale.reproduction` list the latter.


# The rules are named after the tables, features_table and so on, or after the analyses. `params` is the recipe while a rule
# is read, and the params of a job while it runs: both tell the script.
for name in TABLES.makes:
    params = TABLES.recipes[name]
    rule_name = name if name in TABLES.analyses else f"{name}_table"

    rule:
        name:
            rule_name
        input:
            **RECIPES.inputs(name),
        output:
            **TABLES.outputs(name),
        log:
            f"{PATHS.logs}/{rule_name}.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(2000),
            runtime=on_attempt(60),
        params:
            **RECIPES.params(name),
            script=params.script,
        message:
            params.title
        script:
            "../../scripts/" + params.script


rule measured:
    input:
        [PATHS.table(table) for table in ("features", "metrics", "models")],


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
        inputs=lambda wildcards: RECIPES.expected([TABLES.tables[wildcards.table]]),
        code=code_of("table_csv.py"),
    message:
        "{output}"
    script:
        "../../scripts/table_csv.py"


rule csv:
    input:
        expand(rules.table_csv.output, table=["features", "metrics", "models"]),


# The last job where a table of an earlier run was made with something else: it fails unless Snakemake has made it again.
rule compared:
    input:
        TABLES.tables.values(),
    output:
        temp(touch(f"{PATHS.logs}/compared")),
    log:
        f"{PATHS.logs}/compared.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        inputs=lambda _: RECIPES.expected(TABLES.tables.values()),
    message:
        "Comparing what the tables were made with"
    script:
        "../../scripts/compared.py"


rule tables:
    input:
        PATHS.record,
        [TABLES.outputs(name).values() for name in TABLES.makes],
        TABLES.files["training"],
        rules.landscape.input,
