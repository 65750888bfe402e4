# One job a subject: drawing a figure takes less than importing what draws it, so figures of a subject share a job.
from toposcale.figures import FIGURES

FIGURE = f"{RUN}/figures/{{figure}}"
ANALYSES = [
    getattr(rules, name).output
    for name in (
        "correlations",
        "ranking",
        "scaling",
        "transitions",
        "early_stopping",
        "forecasts",
        "decisions",
        "comparison",
    )
]
FIGURE_TABLES = {
    "features": rules.features_table.output[0],
    "metrics": rules.metrics_table.output[0],
    "models": rules.models_table.output[0],
    "diagrams": rules.diagrams_table.output[0],
    "training": TRAINING_LOGS,
    **LANDSCAPE_TABLES,
    **{
        Path(path).stem: path
        for output in ANALYSES
        for path in output
        if path.endswith(".parquet")
    },
}
# A figure whose tables or features this run does not make is not drawn. Every run has metrics.
DRAWN = {
    name: figure
    for name, figure in FIGURES.items()
    if set(figure.tables) <= set(FIGURE_TABLES)
    and figure.source in ["metrics", *MODELS_OF]
}
SUBJECTS = list(dict.fromkeys(figure.category for figure in DRAWN.values()))


for subject in SUBJECTS:

    rule:
        name:
            f"figures_{re.sub('[^a-z]+', '_', subject.lower())}"
        input:
            **{
                table: FIGURE_TABLES[table]
                for figure in drawn_together(subject).values()
                for table in figure.tables
            },
        output:
            **figure_files(subject),
        log:
            f"{LOGS}/figures/{re.sub('[^a-z]+', '_', subject.lower())}.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        threads: 1
        resources:
            mem_mb=on_attempt(1000),
            runtime=on_attempt(10),
        params:
            figures=list(drawn_together(subject)),
            dpi=config["figures"]["dpi"],
            code=fingerprint(
                "figures.py",
                *(
                    f"toposcale.figures.{figure.function.split('.')[0]}"
                    for figure in drawn_together(subject).values()
                ),
            ),
        message:
            f"Figures: {subject}"
        script:
            "../../scripts/figures.py"


localrules:
    figures,


rule figures:
    input:
        expand(f"{FIGURE}.{{format}}", figure=DRAWN, format=["svg", "png"]),
