# Analyses: they read the features, metrics and models tables and the training logs, and nothing else.


localrules:
    correlations,
    ranking,
    scaling,
    transitions,
    early_stopping,
    forecasts,
    decisions,
    comparison,
    summary,
    warnings_table,
    advice,
    tables,


rule correlations:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
    output:
        **analysis(
            "correlations", "partial_correlations", "pooled_correlations", "verdicts"
        ),
    log:
        f"{LOGS}/correlations.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(30),
    params:
        settings=config["statistics"],
        code=fingerprint("correlations.py"),
    message:
        "Correlations of every feature with every metric, and the verdicts"
    script:
        "../../scripts/correlations.py"


rule ranking:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
    output:
        **analysis("ranking", "feature_groups"),
    log:
        f"{LOGS}/ranking.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(30),
    params:
        settings=config["statistics"],
        code=fingerprint("ranking.py"),
    message:
        "Topology against spectra against norms"
    script:
        "../../scripts/ranking.py"


rule scaling:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        models=rules.models_table.output[0],
    output:
        **analysis("scaling", "largest_model"),
    log:
        f"{LOGS}/scaling.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        settings=config["statistics"],
        code=fingerprint("scaling.py"),
    message:
        "Power laws in model size"
    script:
        "../../scripts/scaling.py"


rule transitions:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
    output:
        **analysis("transitions", "change_points", "coincidences"),
    log:
        f"{LOGS}/transitions.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        code=fingerprint("transitions.py"),
    message:
        "Transitions and change points"
    script:
        "../../scripts/transitions.py"


rule early_stopping:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
    output:
        **analysis("early_stopping", "early_stopping_summary"),
    log:
        f"{LOGS}/early_stopping.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        code=fingerprint("early_stopping.py"),
    message:
        "Early stopping by topology and by loss"
    script:
        "../../scripts/early_stopping.py"


rule forecasts:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        models=rules.models_table.output[0],
        training=TRAINING_LOGS,
        vectors=of_every_model(VECTORS, WITH_FEATURES, source="weights"),
    output:
        **analysis("forecasts", "forecast_evaluation"),
    log:
        f"{LOGS}/forecasts.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(30),
    params:
        fractions=config["forecasts"]["fractions"],
        seed=config["statistics"]["seed"],
        resamples=config["statistics"]["resamples"],
        code=fingerprint("forecasts.py"),
    message:
        "Forecasts of the final loss"
    script:
        "../../scripts/forecasts.py"


rule decisions:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        models=rules.models_table.output[0],
        training=TRAINING_LOGS,
    output:
        **analysis("decisions", "decision_evaluation"),
    log:
        f"{LOGS}/decisions.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(2000),
        runtime=on_attempt(30),
    params:
        fractions=config["forecasts"]["fractions"],
        seed=config["statistics"]["seed"],
        resamples=config["statistics"]["resamples"],
        budget=config["decision"]["budget"],
        code=fingerprint("decisions.py"),
    message:
        "Train on, or scale up"
    script:
        "../../scripts/decisions.py"


rule comparison:
    input:
        published=str(HOME / "workflow/published_values.csv"),
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        models=rules.models_table.output[0],
        correlations=rules.correlations.output.correlations,
        scaling=rules.scaling.output.scaling,
        transitions=rules.transitions.output.transitions,
        forecast_evaluation=rules.forecasts.output.forecast_evaluation,
    output:
        **analysis("comparison"),
    log:
        f"{LOGS}/comparison.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        corpus={
            key: config["corpus"][key]
            for key in ("source", "train", "validation", "tokenizer")
        },
        training=TRAINING_SETTINGS,
        seeds=config["seeds"],
        code=fingerprint("comparison.py"),
    message:
        "Published values beside those of this run"
    script:
        "../../scripts/comparison.py"


rule summary:
    input:
        verdicts=rules.correlations.output.verdicts,
        forecast_evaluation=rules.forecasts.output.forecast_evaluation,
        decision_evaluation=rules.decisions.output.decision_evaluation,
    output:
        **analysis("summary", category="Overview"),
    log:
        f"{LOGS}/summary.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        code=fingerprint("summary.py"),
    message:
        "The questions of the project, answered in a sentence each"
    script:
        "../../scripts/summary.py"


rule warnings_table:
    input:
        features=rules.features_table.output[0],
        metrics=rules.metrics_table.output[0],
        duplicates=of_every_model(DUPLICATES, PUBLISHED),
        corpus=rules.corpus.output.description if WITH_WEIGHTS else [],
    output:
        **analysis("warnings", category="Overview"),
    log:
        f"{LOGS}/warnings_table.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        code=fingerprint("warnings_table.py"),
    message:
        "What to know before trusting a number"
    script:
        "../../scripts/warnings_table.py"


# On a run as far as it has come: it reads what is there, so it has no inputs, and it is asked for by name alone.
rule advice:
    log:
        f"{LOGS}/advice.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        run=RUN,
        models={
            name: {
                "family": MODELS[name].family,
                "seed": MODELS[name].seed,
                "final_step": final_step(MODELS[name]),
                "n_parameters": MODELS[name].settings.get("n_parameters"),
                "tokens_per_step": MODELS[name].settings.get("tokens_per_step")
                or TRAINED_TOKENS_PER_STEP,
            }
            for name in [*TRAINED, *MONITORED, *CURVES]
        },
        folders={
            **dict.fromkeys(TRAINED, RUN),
            **{name: MODELS[name].settings["path"] for name in MONITORED},
        },
        curves={name: MODELS[name].settings["path"] for name in CURVES},
        training=TRAINING_SETTINGS,
        budget=config["decision"]["budget"],
        method=config["decision"]["method"],
        seed=config["statistics"]["seed"],
    message:
        "Train on, or scale up?"
    script:
        "../../scripts/advice.py"


rule tables:
    input:
        rules.features_table.output,
        rules.metrics_table.output,
        rules.models_table.output,
        rules.diagrams_table.output if EMBEDDED or LANDSCAPED else [],
        rules.landscape.input,
        TRAINING_LOGS,
        rules.correlations.output,
        rules.ranking.output,
        rules.scaling.output,
        rules.transitions.output,
        rules.early_stopping.output,
        rules.forecasts.output,
        rules.decisions.output,
        rules.comparison.output,
        rules.summary.output,
        rules.warnings_table.output,
        [] if config["hub"]["keep"] else of_every_checkpoint(RELEASED, PUBLISHED),
