# The loss around checkpoints: surfaces, curvature and gradients of each, and the training trajectory between them.


rule loss_landscape:
    input:
        checkpoints=checkpoints_of("landscape"),
        corpus=rules.corpus.output.tokens,
    output:
        **{
            f"{source}_{kind}": pattern.replace("{source}", source)
            for source in ("landscape", "gradients")
            if source in MODELS_OF
            for kind, pattern in (("features", FEATURES), ("diagrams", DIAGRAMS))
        },
        surfaces=SURFACES,
        densities=DENSITIES,
        profiles=PROFILES,
    log:
        f"{LOGS}/loss_landscape/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=one_of(LANDSCAPED),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(240),
        gpu=1 if config["landscape"]["device"] == "cuda" else 0,
    params:
        settings=SETTINGS["landscape"],
        steps=steps_of("landscape"),
        files=files_of_user(checkpoints_of("landscape")),
        leave_gaps=not_made_here,
        tokenizer=own_tokenizer,
        code=code_of("loss_landscape.py"),
    message:
        "Loss landscape of {wildcards.model}, {wildcards.span}"
    script:
        "../../scripts/loss_landscape.py"


rule training_path:
    input:
        checkpoints=checkpoints_of("training"),
        corpus=rules.corpus.output.tokens,
    output:
        path_surfaces=PATH_SURFACES,
        trajectories=TRAJECTORIES,
        profiles=PATH_PROFILES,
    log:
        f"{LOGS}/training_path/{{model}}.log",
    wildcard_constraints:
        model=one_of(TRAINED),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(120),
        gpu=1 if config["landscape"]["device"] == "cuda" else 0,
    params:
        settings={
            key: config["landscape"][key]
            for key in ("batch_size", "max_tokens", "repeats", "resolution", "path_resolution", "device")
        },
        steps=steps_of("training"),
        profiled=steps_of("landscape"),
        code=code_of("training_path.py"),
    message:
        "Training trajectory of {wildcards.model} in its principal plane"
    script:
        "../../scripts/training_path.py"


rule trajectory:
    input:
        lambda wildcards: WORK["training"].files(SKETCH, [wildcards.model]),
    output:
        features=TRAJECTORY_FEATURES,
    log:
        f"{LOGS}/trajectory/{{model}}.log",
    wildcard_constraints:
        model=one_of(TRAINED),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        steps=steps_of("training"),
        window=config["trajectory"]["window"],
        code=code_of("trajectory.py"),
    message:
        "Topology of the training trajectory of {wildcards.model}"
    script:
        "../../scripts/trajectory.py"


rule landscape:
    input:
        WORK["landscape"].files(FEATURES, source="landscape"),
        WORK["gradients"].files(FEATURES, source="gradients"),
        expand(TRAJECTORY_FEATURES, model=WITH_TRAJECTORY),
        [
            f"{TABLES}/{table}.parquet"
            for table in ("surfaces", "densities", "profiles", "path_surfaces", "trajectories")
            if table in GATHERED
        ],
