# Analyses: from tables to tables. `toposcale.analysis.ANALYSES` lists them, with what each reads, makes and is set by.
from toposcale.analysis import ANALYSES

# What an analysis may be set by, by the name of its argument.
ANALYSIS_SETTINGS = {
    **config["statistics"],
    "tasks": config["metrics"]["tasks"],
    "fractions": config["forecasts"]["fractions"],
    "score_metrics": config["forecasts"]["metrics"],
    "loss_metric": config["forecasts"]["loss"],
    "decision": {key: config["decision"][key] for key in ("remaining", "multiples")},
    "training_settings": training_settings(config["training"]),
    "corpus_settings": {key: config["corpus"][key] for key in ("source", "train", "validation", "tokenizer")},
    "seeds": config["seeds"],
    "confirm": {
        "run": fresh.fresh_run(config),
        "obstacle": (
            "not all of its models are trained here, so name another run as confirm.run"
            if set(WITH_FEATURES) != set(TRAINED) and not config["confirm"]["run"]
            else ""
        ),
    },
}
# Scores are forecast if asked for.
NEEDED_BY = {"scores": config["forecasts"]["metrics"]}
ANALYSED = {name: analysis for name, analysis in ANALYSES.items() if NEEDED_BY.get(name, True)}
# Where each table lies: gathered, analysed, published, or of the run with fresh seeds, where that is there.
TABLE_FILES = {
    **fresh_files(fresh.fresh_run(config)),
    "published": str(HOME / "workflow/published_values.csv"),
    "training": TRAINING_LOGS,
    **{table: f"{TABLES}/{table}.parquet" for table in [*GATHERED, "vectors", "metrics", "models", "schedules"]},
    **{table: f"{TABLES}/{table}.parquet" for analysis in ANALYSED.values() for table in analysis.makes},
}


# rule correlations, rule findings, rule confirmation, rule ranking, rule scaling, rule transitions, rule early_stopping, rule forecasts, rule scores,
# rule decisions, rule comparison, rule summary
for name, analysis in ANALYSED.items():

    rule:
        name:
            name
        input:
            **{table: TABLE_FILES[table] for table in analysis.reads},
        output:
            **twins(TABLES, analysis.makes, "parquet", "csv"),
        log:
            f"{LOGS}/{name}.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(2000),
            runtime=on_attempt(30),
        params:
            analysis=name,
            settings={key: ANALYSIS_SETTINGS[key] for key in analysis.settings},
            code=code_of("analyse.py", f"toposcale.analysis.{analysis.function.partition('.')[0]}"),
        message:
            analysis.title
        script:
            "../../scripts/analyse.py"


rule findings_file:
    input:
        TABLE_FILES["findings"],
    output:
        f"{RUN}/confirm.json",
    log:
        f"{LOGS}/findings_file.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        run=config["run"],
        seeds={name: MODELS[name].seed for name in WITH_FEATURES},
        confirm=ANALYSIS_SETTINGS["confirm"],
        code=code_of("findings.py"),
    message:
        "What was found, before fresh runs confirm it: {output}"
    script:
        "../../scripts/findings.py"


rule warnings_table:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        duplicates=expand(DUPLICATES, model=PUBLISHED),
        corpus=rules.corpus.output.description if RUNNABLE else [],
    output:
        **twins(TABLES, ["warnings"], "parquet", "csv"),
    log:
        f"{LOGS}/warnings_table.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        gaps={name: dict(model.gaps) for name, model in MODELS.items() if model.gaps},
        not_runnable={name: model.not_runnable for name, model in MODELS.items() if model.not_runnable},
        leave_out=config["hub"]["duplicates"] == "leave_out",
        code=code_of("warnings_table.py"),
    message:
        "What to know before trusting a number"
    script:
        "../../scripts/warnings_table.py"


# On a run as far as it has come: it reads what is there, so it has no inputs, and it is asked for by name alone.
rule advice:
    log:
        f"{LOGS}/advice.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        run=RUN,
        models={name: model.facts for name, model in MODELS.items()},
        files=lambda wildcards: {name: files_so_far(name) for name in WITH_FEATURES},
        curves=CURVES,
        planned=names_of(model_kinds.PLANNED),
        tables=config["metrics"]["tables"],
        decision=config["decision"],
        output=f"{RUN}/advice.json",
        seed=config["statistics"]["seed"],
    message:
        "Finish, extend, or stop and start another size?"
    script:
        "../../scripts/advice.py"


rule tables:
    input:
        f"{RUN}/config.yaml",
        [path for table, path in TABLE_FILES.items() if table not in ("published", "training", *FRESH)],
        [f"{TABLES}/{table}.csv" for analysis in ANALYSED.values() for table in analysis.makes],
        TRAINING_LOGS,
        rules.landscape.input,
        rules.warnings_table.output,
        rules.findings_file.output,
        [] if config["hub"]["keep"] else WORK["weights"].files(RELEASED, PUBLISHED),
