# The loss around checkpoints: surfaces, curvature and gradients of each, and the way of training between them.

SURFACE = f"{RUN}/landscape/surfaces/{{model}}/step-{{step}}.parquet"
DENSITY = f"{RUN}/landscape/densities/{{model}}/step-{{step}}.parquet"
PROFILE = f"{RUN}/landscape/profiles/{{model}}/step-{{step}}.parquet"
PATH_SURFACE = f"{RUN}/landscape/path_surfaces/{{model}}.parquet"
PATH_PROFILES = f"{RUN}/landscape/path_profiles/{{model}}.parquet"
TRAJECTORY = f"{RUN}/landscape/trajectories/{{model}}.parquet"

LANDSCAPE_SETTINGS = {
    key: value
    for key, value in config["landscape"].items()
    if key not in ("enabled", "every")
}
# The landscape along the way of training is one surface and some lines.
PATH_SETTINGS = {
    key: config["landscape"][key]
    for key in ("batch_size", "max_tokens", "repeats", "resolution", "device")
}
# The way of training is that of models trained here: it needs every checkpoint of a model at once.
WITH_PATH = [model for model in TRAINED if LANDSCAPED]


localrules:
    graph_dependence,
    landscape,


rule loss_landscape:
    input:
        checkpoint=checkpoint,
        corpus=rules.corpus.output.tokens,
    output:
        **(
            {
                "gradients_features": FEATURES.replace("{source}", "gradients"),
                "gradients_diagrams": DIAGRAMS.replace("{source}", "gradients"),
            }
            if config["landscape"]["gradients"]
            else {}
        ),
        landscape_features=FEATURES.replace("{source}", "landscape"),
        landscape_diagrams=DIAGRAMS.replace("{source}", "landscape"),
        surface=SURFACE,
        density=DENSITY,
        profile=PROFILE,
    log:
        f"{LOGS}/loss_landscape/{{model}}/step-{{step}}.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(240),
        gpu=1 if config["landscape"]["device"] == "cuda" else 0,
    params:
        settings=LANDSCAPE_SETTINGS,
        code=fingerprint("loss_landscape.py"),
    message:
        "Loss landscape of {wildcards.model} at step {wildcards.step}"
    script:
        "../../scripts/loss_landscape.py"


rule training_path:
    input:
        checkpoints=checkpoints_of_model,
        corpus=rules.corpus.output.tokens,
    output:
        surface=PATH_SURFACE,
        trajectory=TRAJECTORY,
        profiles=PATH_PROFILES,
    log:
        f"{LOGS}/training_path/{{model}}.log",
    wildcard_constraints:
        model=one_of(TRAINED),
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(120),
        gpu=1 if config["landscape"]["device"] == "cuda" else 0,
    params:
        settings=PATH_SETTINGS,
        steps=steps_of_model,
        profiled=landscaped_steps,
        code=fingerprint("training_path.py"),
    message:
        "The way of training of {wildcards.model}"
    script:
        "../../scripts/training_path.py"


rule trajectory:
    input:
        sketches_of_model,
    output:
        TRAJECTORY_FEATURES,
    log:
        f"{LOGS}/trajectory/{{model}}.log",
    wildcard_constraints:
        model=one_of(TRAINED),
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(30),
    params:
        steps=steps_of_model,
        settings={
            key: value
            for key, value in config["trajectory"].items()
            if key != "enabled"
        },
        code=fingerprint("trajectory.py"),
    message:
        "Topology of the way of training of {wildcards.model}"
    script:
        "../../scripts/trajectory.py"


# What each table is gathered from, and the tables by name, for figures and for who else reads them; empty where the
# run makes none.
LANDSCAPE_PARTS = {
    "surfaces": of_every_checkpoint(SURFACE, LANDSCAPED, source="landscape"),
    "densities": of_every_checkpoint(DENSITY, LANDSCAPED, source="landscape"),
    "profiles": [
        *of_every_checkpoint(PROFILE, LANDSCAPED, source="landscape"),
        *of_every_model(PATH_PROFILES, WITH_PATH),
    ],
    "path_surfaces": of_every_model(PATH_SURFACE, WITH_PATH),
    "trajectories": of_every_model(TRAJECTORY, WITH_PATH),
}
LANDSCAPE_TABLES = {
    table: f"{TABLES}/{table}.parquet"
    for table, parts in LANDSCAPE_PARTS.items()
    if parts
}


for table, path in LANDSCAPE_TABLES.items():

    rule:
        name:
            f"{table}_table"
        input:
            parts=LANDSCAPE_PARTS[table],
            left_out=LEFT_OUT,
        output:
            path,
        log:
            f"{LOGS}/{table}_table.log",
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        threads: 1
        resources:
            mem_mb=on_attempt(2000),
            runtime=on_attempt(10),
        params:
            table=table,
            code=fingerprint("gather.py"),
        message:
            "Gathering {params.table}"
        script:
            "../../scripts/gather.py"


rule graph_dependence:
    input:
        features=of_every_checkpoint(FEATURES, LANDSCAPED, source="landscape"),
        left_out=LEFT_OUT,
    output:
        **analysis("graph_dependence"),
    log:
        f"{LOGS}/graph_dependence.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(1000),
        runtime=on_attempt(10),
    params:
        graphs=config["landscape"]["graphs"],
        code=fingerprint("graph_dependence.py"),
    message:
        "How much the features of the landscape depend on the choice of graph"
    script:
        "../../scripts/graph_dependence.py"


rule landscape:
    input:
        [
            path
            for source in ("landscape", "gradients")
            if source in MODELS_OF
            for path in of_every_checkpoint(FEATURES, LANDSCAPED, source=source)
        ],
        of_every_model(TRAJECTORY_FEATURES, WITH_TRAJECTORY),
        list(LANDSCAPE_TABLES.values()),
        rules.graph_dependence.output if LANDSCAPED else [],
