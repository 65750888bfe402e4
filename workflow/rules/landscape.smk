# The loss landscape around checkpoints, and the training trajectory between them, in its plane.


rule loss_landscape:
    input:
        corpus=PATHS.tokens,
        checkpoints=INPUTS.checkpoints("landscape"),
        fetched=INPUTS.fetched("landscape"),
    output:
        **{
            f"gradients_{name}": getattr(PATHS, name).replace("{source}", "gradients")
            for name in ("features", "diagrams")
            if "gradients" in PLAN.sources
        },
        landscape_features=PATHS.features.replace("{source}", "landscape"),
        landscape_diagrams=PATHS.diagrams.replace("{source}", "landscape"),
        surfaces=PATHS.surfaces,
        densities=PATHS.densities,
        profiles=PATHS.profiles,
    log:
        f"{PATHS.logs}/loss_landscape/{{model}}/{{checkpoints}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.landscaped),
    priority: MEASURED_FIRST
    group:
        INPUTS.group
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(240),
        gpu=int(config["landscape"]["device"] == "cuda"),
    params:
        **DIGESTS.params("loss_landscape", "loss_landscape.py", jobs=PLAN.work["landscape"].jobs()),
        settings=PLAN.settings["landscape"],
        steps=INPUTS.steps("landscape"),
        source=INPUTS.settings("repo", "revisions"),
        allow_missing=INPUTS.allow_missing,
        tokenizer=INPUTS.tokenizer,
    message:
        f"Loss landscape of {{wildcards.model}}, {PLAN.work['landscape'].job_title}"
    script:
        "../../scripts/loss_landscape.py"


rule training_path:
    input:
        corpus=PATHS.tokens,
        checkpoints=INPUTS.checkpoints("training"),
    output:
        path_surfaces=PATHS.path_surfaces,
        trajectories=PATHS.trajectories,
        profiles=PATHS.path_profiles,
    log:
        f"{PATHS.logs}/training_path/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.trained),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(120),
        gpu=int(config["landscape"]["device"] == "cuda"),
    params:
        **DIGESTS.params("training_path", "training_path.py", jobs=jobs_of_models(PLAN.with_path)),
        settings={
            key: config["landscape"][key]
            for key in ("batch_size", "max_tokens", "repeats", "resolution", "path_resolution", "device")
        },
        profiled=INPUTS.steps("landscape"),
        steps=INPUTS.steps("training"),
    message:
        "Training trajectory of {wildcards.model} in its principal plane"
    script:
        "../../scripts/training_path.py"


rule landscape:
    input:
        PLAN.work["landscape"].files(PATHS.features, source="landscape"),
        PLAN.work["gradients"].files(PATHS.features, source="gradients"),
        files_of_models(PATHS.trajectory_features, PLAN.with_trajectory),
        [
            PATHS.table(table)
            for table in ("surfaces", "densities", "profiles", "path_surfaces", "trajectories")
            if table in TABLES.gathered
        ],
