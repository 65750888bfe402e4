# The text of the run, and what the user states in files of his own, as tables of the run.


rule corpus:
    input:
        train=INPUTS.corpus["train"],
        validation=INPUTS.corpus["validation"],
    output:
        tokens=PATHS.tokens,
        description=PATHS.corpus,
    log:
        f"{PATHS.logs}/corpus.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("corpus", "corpus.py"),
        source=config["corpus"]["source"],
        tokenizer=config["corpus"]["tokenizer"],
        vocab_size=config["corpus"]["vocab_size"],
        context=config["training"]["context"],
        texts=INPUTS.corpus,
    message:
        "Corpus: {params.source}, {params.tokenizer}"
    script:
        "../../scripts/corpus.py"


rule schedule_file:
    input:
        file=lambda wildcards: PLAN.schedule_files[wildcards.model],
    output:
        schedule=PATHS.schedule,
    log:
        f"{PATHS.logs}/schedule_file/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.schedule_files),
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("schedule_file", "schedule_file.py", jobs=jobs_of_models(PLAN.schedule_files)),
    message:
        "Learning-rate schedule of {wildcards.model}"
    script:
        "../../scripts/schedule_file.py"


rule loss_table:
    input:
        curve=lambda wildcards: PLAN.loss_curves[wildcards.model],
    output:
        log=PATHS.model_log,
        metrics=PATHS.curve_metrics,
    log:
        f"{PATHS.logs}/loss_table/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.loss_curves),
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("loss_table", "loss_table.py", jobs=jobs_of_models(PLAN.loss_curves)),
        pattern=lambda wildcards: PLAN.models[wildcards.model].losses_pattern,
        steps=lambda wildcards: list(PLAN.models[wildcards.model].steps),
    message:
        "Loss curve of {wildcards.model}"
    script:
        "../../scripts/loss_table.py"


rule user_metrics:
    input:
        tables=config["metrics"]["tables"],
    output:
        metrics=PATHS.user_metrics,
    log:
        f"{PATHS.logs}/user_metrics.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **DIGESTS.params("user_metrics", "user_metrics.py"),
        models=list(PLAN.models),
    message:
        "Reading the tables of metrics.tables"
    script:
        "../../scripts/user_metrics.py"
