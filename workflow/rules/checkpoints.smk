# Checkpoints that others published: compared, fetched and checked, and removed again where they are not to be kept.
# The keys of `hub:` say how files are fetched, not which. The scripts read them from the configuration: if they were
# params, a changed timeout would fetch every checkpoint again.


rule duplicates:
    output:
        # The rule fetch may read the last comparison while a new one is made.
        update(PATHS.duplicates),
    log:
        f"{PATHS.logs}/duplicates/{{model}}.log",
    wildcard_constraints:
        model=PLAN.one_of(PLAN.published),
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    threads: 0
    resources:
        runtime=on_attempt(30),
        downloads=1,
    params:
        source=INPUTS.settings("repo", "revisions", "steps"),
        code=code_of("duplicates.py"),
    message:
        "Comparing the revisions of {wildcards.model}"
    script:
        "../../scripts/duplicates.py"


# A checkpoint is fetched after the revisions were compared and, where checkpoints are removed again, once there is room
# for it. The file of its turn says what it was fetched for. While that stays the same, no rule makes the file, so that no
# job on another checkpoint leads to a job on this one. (`ancient` would not do: where a job has a reason to run, Snakemake
# does not look for reasons of the jobs after it, also where the input between them is `ancient`.)
rule turn:
    input:
        lambda wildcards: PATHS.duplicates.format(model=wildcards.checkpoint.rpartition("/")[0]),
        lambda wildcards: TURNS.room_for(
            wildcards.checkpoint, workflow.resource_settings.cores or workflow.resource_settings.nodes or 1
        ),
    output:
        PATHS.turn.replace("{model}/{span}", "{checkpoint}"),
    log:
        f"{PATHS.logs}/turn/{{checkpoint}}.log",
    wildcard_constraints:
        checkpoint="|".join(map(re.escape, TURNS.to_fetch)) or "$.",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        purpose=lambda wildcards: TURNS.purposes[wildcards.checkpoint],
    message:
        "Room for {wildcards.checkpoint}"
    shell:
        "echo {params.purpose} > {output} 2> {log}"


rule fetch:
    input:
        PATHS.turn,
    output:
        # Where checkpoints are removed from the cache, so are their manifests: what is needed later is fetched again.
        manifest=PATHS.manifest if config["hub"]["keep"] else temp(PATHS.manifest),
        # It says what the attempt before came to, so that it is not removed before the next one.
        size=update(PATHS.size),
    log:
        f"{PATHS.logs}/fetch/{{model}}/{{span}}.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    # It waits for the network: a core for it would be idle.
    threads: 0
    resources:
        runtime=on_attempt(240),
        downloads=1,
    params:
        source=INPUTS.settings("repo", "revisions"),
        leave_out=config["hub"]["duplicates"] == "leave_out",
        duplicates=PATHS.duplicates,
        # One more damaged download makes the param another one: the next run fetches what this one got damaged.
        damaged=lambda wildcards: INPUTS.noted(wildcards.model, wildcards.span).get("damaged", 0),
        code=code_of("fetch.py"),
    message:
        "Fetching {wildcards.model} at {wildcards.span}"
    script:
        "../../scripts/fetch.py"


rule release:
    input:
        INPUTS.consumers,
        manifest=PATHS.manifest,
    output:
        touch(PATHS.released),
    log:
        f"{PATHS.logs}/release/{{model}}/{{span}}.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        code=code_of("release.py"),
    message:
        "Removing {wildcards.model} at {wildcards.span} from the cache"
    script:
        "../../scripts/release.py"
