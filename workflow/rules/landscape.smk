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


rule landscape:
    input:
        PLAN.work["landscape"].files(PATHS.features, source="landscape"),
        PLAN.work["gradients"].files(PATHS.features, source="gradients"),
        files_of_models(PATHS.trajectory_features, PLAN.with_trajectory),
        [
            PATHS.table(table)
            for table in ("surfaces", "densities", "profiles", "path_surfaces", "trajectories")
            if table in TABLES.parts_of_tables
        ],
