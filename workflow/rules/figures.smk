# One job: drawing a figure takes less than importing what draws it. `snakemake --report` holds the SVG of each.


rule figures:
    input:
        **RECIPES.inputs("figures"),
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
        **RECIPES.params("figures"),
    message:
        "Figures"
    script:
        "../../scripts/figures.py"
