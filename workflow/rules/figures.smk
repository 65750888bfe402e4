# One job: drawing a figure takes less than importing what draws it. `snakemake --report` holds the SVG of each.


rule figures:
    input:
        **{table: TABLES.files[table] for figure in TABLES.figures.values() for table in figure.tables},
    output:
        **{
            name: report(f"{PATHS.figures}/{name}.svg", category=figure.subject, labels={"figure": figure.title})
            for name, figure in TABLES.figures.items()
        },
        **{f"{name}_png": f"{PATHS.figures}/{name}.png" for name in TABLES.figures},
    log:
        f"{PATHS.logs}/figures.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        figures=list(TABLES.figures),
        dpi=config["figures"]["dpi"],
        tasks=config["metrics"]["tasks"],
        inputs=lambda _: TABLES.expected(table for figure in TABLES.figures.values() for table in figure.tables),
        code=code_of("figures.py", *(f"toposcale.figures.{figure.module}" for figure in TABLES.figures.values())),
    message:
        "Figures"
    script:
        "../../scripts/figures.py"
