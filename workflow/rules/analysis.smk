# The analyses, each a function of tables: what it reads, makes and takes stands in the registry, `toposcale.analysis.ANALYSES`.


rule correlations:
    input:
        **TABLES.read_by("correlations"),
    output:
        **TABLES.made_by("correlations"),
    log:
        f"{PATHS.logs}/correlations.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(60),
    params:
        **TABLES.params("correlations", DIGESTS),
    message:
        ANALYSES["correlations"].title
    script:
        "../../scripts/analyse.py"


use rule correlations as scaling with:
    input:
        **TABLES.read_by("scaling"),
    output:
        **TABLES.made_by("scaling"),
    log:
        f"{PATHS.logs}/scaling.log",
    params:
        **TABLES.params("scaling", DIGESTS),
    message:
        ANALYSES["scaling"].title


use rule correlations as transitions with:
    input:
        **TABLES.read_by("transitions"),
    output:
        **TABLES.made_by("transitions"),
    log:
        f"{PATHS.logs}/transitions.log",
    params:
        **TABLES.params("transitions", DIGESTS),
    message:
        ANALYSES["transitions"].title


use rule correlations as early_stopping with:
    input:
        **TABLES.read_by("early_stopping"),
    output:
        **TABLES.made_by("early_stopping"),
    log:
        f"{PATHS.logs}/early_stopping.log",
    params:
        **TABLES.params("early_stopping", DIGESTS),
    message:
        ANALYSES["early_stopping"].title


use rule correlations as forecasts with:
    input:
        **TABLES.read_by("forecasts"),
    output:
        **TABLES.made_by("forecasts"),
    log:
        f"{PATHS.logs}/forecasts.log",
    params:
        **TABLES.params("forecasts", DIGESTS),
    message:
        ANALYSES["forecasts"].title


use rule correlations as scores with:
    input:
        **TABLES.read_by("scores"),
    output:
        **TABLES.made_by("scores"),
    log:
        f"{PATHS.logs}/scores.log",
    params:
        **TABLES.params("scores", DIGESTS),
    message:
        ANALYSES["scores"].title


use rule correlations as decisions with:
    input:
        **TABLES.read_by("decisions"),
    output:
        **TABLES.made_by("decisions"),
    log:
        f"{PATHS.logs}/decisions.log",
    params:
        **TABLES.params("decisions", DIGESTS),
    message:
        ANALYSES["decisions"].title


use rule correlations as summary with:
    input:
        **TABLES.read_by("summary"),
    output:
        **TABLES.made_by("summary"),
    log:
        f"{PATHS.logs}/summary.log",
    params:
        **TABLES.params("summary", DIGESTS),
    message:
        ANALYSES["summary"].title


use rule correlations as comparison with:
    input:
        **TABLES.read_by("comparison"),
    output:
        **TABLES.made_by("comparison"),
    log:
        f"{PATHS.logs}/comparison.log",
    params:
        **TABLES.params("comparison", DIGESTS),
    message:
        ANALYSES["comparison"].title


use rule correlations as claims with:
    input:
        **TABLES.read_by("claims"),
    output:
        **TABLES.made_by("claims"),
    log:
        f"{PATHS.logs}/claims.log",
    params:
        **TABLES.params("claims", DIGESTS),
    message:
        ANALYSES["claims"].title


rule tables:
    input:
        PATHS.record,
        list(TABLES.tables.values()),
        [PATHS.csv(table) for table in TABLES.with_csv],
        TABLES.files["training"],
        rules.landscape.input,


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
        inputs=lambda _: DIGESTS.expected(TABLES.tables.values()),
    message:
        "Comparing what the tables were made with"
    script:
        "../../scripts/compared.py"
