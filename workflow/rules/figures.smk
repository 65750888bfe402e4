# One job a subject: drawing a figure takes less than importing what draws it, so figures of a subject share a job.
# `snakemake --report` holds the SVG of each.


# The rules are named after the subjects of the gallery: figures_overview and so on.
for subject, drawn in TABLES.subjects.items():
    plain_name = re.sub("[^a-z]+", "_", subject.lower())

    rule:
        name:
            f"figures_{plain_name}"
        input:
            **{table: TABLES.files[table] for name in drawn for table in TABLES.figures[name].tables},
        output:
            **{
                name: report(
                    f"{PATHS.figures}/{name}.svg", category=subject, labels={"figure": TABLES.figures[name].title}
                )
                for name in drawn
            },
            **{f"{name}_png": f"{PATHS.figures}/{name}.png" for name in drawn},
        log:
            f"{PATHS.logs}/figures/{plain_name}.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        params:
            figures=drawn,
            dpi=config["figures"]["dpi"],
            tasks=config["metrics"]["tasks"],
            inputs=lambda _, drawn=drawn: TABLES.expected(
                table for name in drawn for table in TABLES.figures[name].tables
            ),
            code=code_of("figures.py", *(f"toposcale.figures.{TABLES.figures[name].module}" for name in drawn)),
        message:
            f"Figures: {subject}"
        script:
            "../../scripts/figures.py"


rule figures:
    input:
        [f"{PATHS.figures}/{name}.{suffix}" for name in TABLES.figures for suffix in ("svg", "png")],
