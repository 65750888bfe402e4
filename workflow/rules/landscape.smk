# The training trajectory between checkpoints, in its plane; rule loss_landscape is in features.smk.


rule training_path:
    input:
        **RECIPES.inputs("path"),
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
        gpu=1 if config["landscape"]["device"] == "cuda" else 0,
    params:
        **RECIPES.params("path"),
    message:
        "Training trajectory of {wildcards.model} in its principal plane"
    script:
        "../../scripts/training_path.py"


# Of a model that is trained here, with a job a model: all of these and the embeddings by one process, since each would
# import PyTorch. It leaves alone what is there as it is to be (`update`), so that a changed key makes its own part again.
TOGETHER = {"embeddings": rules.embeddings, "landscape": rules.loss_landscape, "path": rules.training_path}
if PLAN.with_trajectory:
    TOGETHER["trajectory"] = rules.trajectory


rule model_measurements:
    input:
        **{f"{kind}_{name}": files for kind in TOGETHER for name, files in RECIPES.inputs(kind).items()},
    output:
        **{
            f"{kind}_{name}": update(file.replace("{checkpoints}", plan.ALL))
            for kind, alone in TOGETHER.items()
            for name, file in alone.output.items()
        },
    log:
        f"{PATHS.logs}/model_measurements/{{model}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.together),
    conda:
        "../../envs/toposcale.yaml"
    resources:
        mem_mb=on_attempt(4000),
        runtime=on_attempt(420),
        gpu=int("cuda" in (config["embeddings"]["device"], config["landscape"]["device"])),
    params:
        **{kind: partial(RECIPES.params_of_job, kind) for kind in TOGETHER},
    message:
        "Embeddings, loss landscape and training trajectory of {wildcards.model}"
    script:
        "../../scripts/model_measurements.py"


ruleorder: model_measurements > embeddings > loss_landscape > training_path > trajectory


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
