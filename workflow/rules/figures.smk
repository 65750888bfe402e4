# One job: drawing a figure takes less than importing what draws it. `snakemake --report` holds the SVG of each.


rule figures:
    input:
        **TABLES.read_by_figures,
    output:
        **{
            name: report(f"{PATHS.figures}/{name}.svg", category=figure.subject, labels={"figure": figure.title})
            for name, figure in TABLES.figures.items()
        },
        **{
            f"{name}_{kind}": f"{PATHS.figures}/{name}.{kind}"
            for kind in sorted({"png", *config["figures"]["formats"]} - {"svg"})
            for name in TABLES.figures
        },
    log:
        f"{PATHS.logs}/figures.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params(
            "figures", "figures.py", *(f"toposcale.figures.{figure.module}" for figure in TABLES.figures.values())
        ),
        figures=list(TABLES.figures),
        pdf="pdf" in config["figures"]["formats"],
        tasks=lambda wildcards: config["metrics"]["tasks"],
    message:
        "Figures"
    script:
        "../../scripts/figures.py"
