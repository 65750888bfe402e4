# The loss around checkpoints: surfaces, curvature and gradients of each, and the training trajectory between them.


rule loss_landscape:
    input:
        checkpoints=INPUTS.checkpoints("landscape"),
        corpus=rules.corpus.output.tokens,
    output:
        **{
            f"{source}_{kind}": pattern.replace("{source}", source)
            for source in ("landscape", "gradients")
            if source in PLAN.sources
            for kind, pattern in (("features", PATHS.features), ("diagrams", PATHS.diagrams))
        },
        surfaces=PATHS.surfaces,
        densities=PATHS.densities,
        profiles=PATHS.profiles,
    log:
        f"{PATHS.logs}/loss_landscape/{{model}}/{{span}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.landscaped),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(240),
        gpu=1 if config["landscape"]["device"] == "cuda" else 0,
    params:
        settings=PLAN.settings["landscape"],
        steps=INPUTS.steps("landscape"),
        files=INPUTS.state_of_files("landscape"),
        allow_missing=INPUTS.from_elsewhere,
        tokenizer=INPUTS.tokenizer,
        code=code_of("loss_landscape.py"),
    message:
        "Loss landscape of {wildcards.model}, {wildcards.span}"
    script:
        "../../scripts/loss_landscape.py"


rule training_path:
    input:
        checkpoints=INPUTS.checkpoints("training"),
        corpus=rules.corpus.output.tokens,
    output:
        path_surfaces=PATHS.path_surfaces,
        trajectories=PATHS.trajectories,
        profiles=PATHS.path_profiles,
    log:
        f"{PATHS.logs}/training_path/{{model}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.trained),
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
        steps=INPUTS.steps("training"),
        profiled=INPUTS.steps("landscape"),
        code=code_of("training_path.py"),
    message:
        "Training trajectory of {wildcards.model} in its principal plane"
    script:
        "../../scripts/training_path.py"


rule trajectory:
    input:
        lambda wildcards: PLAN.work["training"].files(PATHS.sketch, [wildcards.model]),
    output:
        features=PATHS.trajectory_features,
    log:
        f"{PATHS.logs}/trajectory/{{model}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.trained),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        steps=INPUTS.steps("training"),
        window=config["trajectory"]["window"],
        code=code_of("trajectory.py"),
    message:
        "Topology of the training trajectory of {wildcards.model}"
    script:
        "../../scripts/trajectory.py"


rule landscape:
    input:
        PLAN.work["landscape"].files(PATHS.features, source="landscape"),
        PLAN.work["gradients"].files(PATHS.features, source="gradients"),
        each(PATHS.trajectory_features, PLAN.with_trajectory),
        [
            PATHS.table(table)
            for table in ("surfaces", "densities", "profiles", "path_surfaces", "trajectories")
            if table in TABLES.gathered
        ],
