# The loss around checkpoints: surfaces, curvature and gradients of each, and the training trajectory between them.

LANDSCAPE_SETTINGS = without(
    config["landscape"], "enabled", "every", "jobs", "path_resolution"
)
# The landscape along the training trajectory is one surface and some lines.
PATH_SETTINGS = {
    key: config["landscape"][key]
    for key in (
        "batch_size",
        "max_tokens",
        "repeats",
        "resolution",
        "path_resolution",
        "device",
    )
}


for cut in CUTS["landscape"]:

    rule:
        name:
            f"loss_landscape{cut.suffix}"
        input:
            checkpoints=checkpoints_of(cut),
            corpus=rules.corpus.output.tokens,
        output:
            **{
                f"{source}_{kind}": cut.files(pattern.replace("{source}", source))
                for source in ("landscape", "gradients")
                if source in MODELS_OF
                for kind, pattern in (("features", FEATURES), ("diagrams", DIAGRAMS))
            },
            surface=cut.files(SURFACE),
            density=cut.files(DENSITY),
            profile=cut.files(PROFILE),
        log:
            cut.name(f"{LOGS}/loss_landscape/{{model}}") + ".log",
        wildcard_constraints:
            model=one_of(cut.models),
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(4000),
            runtime=on_attempt(240),
            gpu=1 if config["landscape"]["device"] == "cuda" else 0,
        params:
            settings=LANDSCAPE_SETTINGS,
            steps=cut.steps_of,
            leave_gaps=not_made_here,
            files=files_of_user(checkpoints_of(cut)),
            tokenizer=own_tokenizer,
            code=fingerprint("loss_landscape.py"),
        message:
            f"Loss landscape of {cut.where}"
        script:
            "../../scripts/loss_landscape.py"


rule training_path:
    input:
        checkpoints=lambda wildcards: checkpoint_files(
            wildcards.model, MODELS[wildcards.model].steps
        ),
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
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(120),
        gpu=1 if config["landscape"]["device"] == "cuda" else 0,
    params:
        settings=PATH_SETTINGS,
        steps=steps_of(),
        profiled=steps_of("landscape"),
        code=fingerprint("training_path.py"),
    message:
        "Training trajectory of {wildcards.model} in its principal plane"
    script:
        "../../scripts/training_path.py"


rule trajectory:
    input:
        lambda wildcards: of_checkpoints(SKETCH, wildcards.model, "training"),
    output:
        TRAJECTORY_FEATURES,
    log:
        f"{LOGS}/trajectory/{{model}}.log",
    wildcard_constraints:
        model=one_of(TRAINED),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(30),
    params:
        steps=steps_of(),
        window=config["trajectory"]["window"],
        code=fingerprint("trajectory.py"),
    message:
        "Topology of the training trajectory of {wildcards.model}"
    script:
        "../../scripts/trajectory.py"


rule landscape:
    input:
        [
            path
            for source in ("landscape", "gradients")
            if source in MODELS_OF
            for path in of_every_checkpoint(FEATURES, LANDSCAPED, source=source)
        ],
        of_every_model(TRAJECTORY_FEATURES, WITH_TRAJECTORY),
        [
            f"{TABLES}/{table}.parquet"
            for table in (
                "surfaces",
                "densities",
                "profiles",
                "path_surfaces",
                "trajectories",
            )
            if table in GATHERED
        ],
