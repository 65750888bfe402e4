# What is gathered from tables, and targets.


rule measured:
    input:
        [PATHS.table(table) for table in ("features", "metrics", "models")],
        # No job reads these where the tables are there: one that was deleted is made again.
        INPUTS.made,


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
        inputs=lambda _: RECIPES.expected_digests(TABLES.tables.values()),
    message:
        "Comparing what the tables were made with"
    script:
        "../../scripts/compared.py"


rule tables:
    input:
        PATHS.record,
        [recipe.outputs.values() for recipe in TABLES.recipes.values()],
        TABLES.files["training"],
        rules.landscape.input,
