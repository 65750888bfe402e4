# Checkpoints that others published. With `hub.keep` they stay in the cache, where Snakemake runs: the nodes of a cluster need no
# network. Without, a checkpoint is fetched and measured by one group of jobs, and removed after its last measurement.
# The keys of `hub:` say how files are fetched, not which. The script reads them from the configuration: if they were
# params, another cache would fetch every checkpoint again.
KEPT = config["hub"]["keep"]
# What is fetched is measured before more is fetched, so that the disk holds what jobs at work need.
MEASURED_FIRST = 1


rule fetch:
    output:
        manifest=PATHS.manifest,
        folder=directory(PATHS.fetched) if KEPT else temp(directory(PATHS.fetched)),
    log:
        f"{PATHS.logs}/fetch/{{model}}/{{checkpoints}}.log",
    wildcard_constraints:
        model=PLAN.wildcard_regex(PLAN.published),
    group:
        INPUTS.group
    localrule: KEPT
    conda:
        "../../envs/toposcale.yaml"
    # A download needs no core. Where the weights do not stay, one begins only when there is a place to measure one.
    threads: 0 if KEPT else max(config[source]["threads"] for source in ("weights", "embeddings"))
    resources:
        runtime=on_attempt(240),
        downloads=1 if KEPT else 0,
        gpu=0 if KEPT else int("cuda" in (config["embeddings"]["device"], config["landscape"]["device"])),
    params:
        source=INPUTS.settings("repo", "revisions"),
        revisions=PATHS.revisions,
        code=code_of("fetch.py"),
    message:
        "Fetching {wildcards.model} at {wildcards.checkpoints}"
    script:
        "../../scripts/fetch.py"
