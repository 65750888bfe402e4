# Checkpoints that others published: fetched and checked. With `hub.keep` they stay in the cache, and jobs of their own measure
# them, on nodes that need no network. Without, one job fetches a checkpoint, makes all measurements of it and removes it, so
# that there are never more of them on the disk than jobs at work.
# The keys of `hub:` say how files are fetched, not which. The scripts read them from the configuration: if they were
# params, a changed timeout would fetch every checkpoint again.
FETCHED = {
    "source": INPUTS.settings("repo", "revisions"),
    "leave_out": config["hub"]["duplicates"] == "leave_out",
    "duplicates": PATHS.duplicates,
    "attempt": INPUTS.attempt,
}

if config["hub"]["keep"]:

    rule fetch:
        output:
            # It says what the attempt before came to, so that it is not removed before the next one.
            manifest=update(PATHS.manifest),
        log:
            f"{PATHS.logs}/fetch/{{model}}/{{span}}.log",
        wildcard_constraints:
            model=PLAN.one_of(PLAN.published),
        localrule: True
        conda:
            "../../envs/toposcale.yaml"
        # It waits for the network: a core for it would be idle.
        threads: 0
        resources:
            runtime=on_attempt(240),
            downloads=1,
        params:
            **FETCHED,
            code=code_of("fetch.py"),
        message:
            "Fetching {wildcards.model} at {wildcards.span}"
        script:
            "../../scripts/fetch.py"

else:
    # rule published, rule published_2 and so on: one for each set of measurements and of checkpoints.
    for number, published in enumerate(INPUTS.published_rules(), 1):

        rule:
            name:
                f"published_{number}" if number > 1 else "published"
            input:
                corpus=rules.corpus.output.tokens if {"embeddings", "landscape"} & set(published.measured) else [],
            output:
                **INPUTS.published_outputs(published.measured),
                manifest=update(PATHS.manifest),
            log:
                f"{PATHS.logs}/published/{{model}}/{{span}}.log",
            wildcard_constraints:
                model=PLAN.one_of(published.models),
                span="|".join(published.spans),
            conda:
                "../../envs/toposcale.yaml"
            threads: max(config[source]["threads"] for source in ("weights", "embeddings"))
            resources:
                mem_mb=by_size(4000, per_weight=8),
                runtime=by_size(400, per_weight=80e-3),
                gpu=1 if "cuda" in (config["embeddings"]["device"], config["landscape"]["device"]) else 0,
            params:
                **FETCHED,
                **{kind: INPUTS.published_params(kind) for kind in published.measured},
                measured={kind: targets.SCRIPTS[kind].removesuffix(".py") for kind in published.measured},
                code=code_of("published.py", *(targets.SCRIPTS[kind].removesuffix(".py") for kind in published.measured)),
            message:
                "Fetching and measuring {wildcards.model} at {wildcards.span}"
            script:
                "../../scripts/published.py"
