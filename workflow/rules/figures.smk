# One job a subject: drawing a figure takes less than importing what draws it, so figures of a subject share a job.
from toposcale.figures import FIGURES

FIGURE = f"{RUN}/figures/{{figure}}"
# A figure whose tables or features this run does not make is not drawn. Every run has metrics.
DRAWN = {
    name: figure
    for name, figure in FIGURES.items()
    if set(figure.tables) <= set(TABLE_FILES) and figure.source in ["metrics", *MODELS_OF]
}
SUBJECTS = {
    subject: {name: figure for name, figure in DRAWN.items() if figure.subject == subject}
    for subject in dict.fromkeys(figure.subject for figure in DRAWN.values())
}


# rule figures_overview, rule figures_training, rule figures_weights, rule figures_embeddings, rule figures_loss_landscape,
# rule figures_statistics, rule figures_forecasts_and_decisions
for subject, drawn in SUBJECTS.items():
    plain_name = re.sub("[^a-z]+", "_", subject.lower())

    rule:
        name:
            f"figures_{plain_name}"
        input:
            **{table: TABLE_FILES[table] for figure in drawn.values() for table in figure.tables},
        output:
            **twins(f"{RUN}/figures", drawn, "svg", "png"),
        log:
            f"{LOGS}/figures/{plain_name}.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        params:
            figures=list(drawn),
            dpi=config["figures"]["dpi"],
            tasks=config["metrics"]["tasks"],
            code=code_of("figures.py", *(f"toposcale.figures.{figure.module}" for figure in drawn.values())),
        message:
            f"Figures: {subject}"
        script:
            "../../scripts/figures.py"


rule figures:
    input:
        expand(f"{FIGURE}.{{format}}", figure=DRAWN, format=["svg", "png"]),
