# Checkpoints that others published: compared, fetched and checked, and removed again where they are not to be kept.
# The keys of `hub:` say how files are fetched, not which. The scripts read them from the configuration: if they were
# params, a changed timeout would fetch every checkpoint again.

MANIFEST = f"{RUN}/checkpoints/{{model}}/{{span}}.json"
DUPLICATES = f"{RUN}/checkpoints/{{model}}/duplicates.json"
SIZE = f"{RUN}/checkpoints/{{model}}/{{span}}.size.json"
TURN = f"{RUN}/checkpoints/{{model}}/{{span}}.turn"
RELEASED = f"{RUN}/checkpoints/{{model}}/{{span}}.released"

# What published checkpoints, {model}/{span}, are needed for; those that must be fetched for it; and all that need room in
# the cache, in the order in which they get it.
PURPOSES = {
    f"{model}/{plan.span_of(step)}": purpose_of(model, step) for model in PUBLISHED for step in MODELS[model].steps
}
TO_FETCH = [checkpoint for checkpoint, purpose in PURPOSES.items() if is_due(checkpoint, purpose)]
IN_TURN = [checkpoint for checkpoint in PURPOSES if checkpoint not in TO_FETCH and unfinished(checkpoint)] + TO_FETCH


rule duplicates:
    output:
        # The rule fetch may read the last comparison while a new one is made.
        update(DUPLICATES),
    log:
        f"{LOGS}/duplicates/{{model}}.log",
    wildcard_constraints:
        model=one_of(PUBLISHED),
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    threads: 0
    resources:
        runtime=on_attempt(30),
        downloads=1,
    params:
        source=settings_of("repo", "revisions", "steps"),
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
        lambda wildcards: DUPLICATES.format(model=wildcards.checkpoint.rpartition("/")[0]),
        room_for,
    output:
        TURN.replace("{model}/{span}", "{checkpoint}"),
    log:
        f"{LOGS}/turn/{{checkpoint}}.log",
    wildcard_constraints:
        checkpoint="|".join(map(re.escape, TO_FETCH)) or "$.",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        purpose=lambda wildcards: PURPOSES[wildcards.checkpoint],
    message:
        "Room for {wildcards.checkpoint}"
    shell:
        "echo {params.purpose} > {output} 2> {log}"


rule fetch:
    input:
        TURN,
    output:
        # Where checkpoints are removed from the cache, so are their manifests: what is needed later is fetched again.
        manifest=MANIFEST if config["hub"]["keep"] else temp(MANIFEST),
        # It says what the attempt before came to, so that it is not removed before the next one.
        size=update(SIZE),
    log:
        f"{LOGS}/fetch/{{model}}/{{span}}.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    # It waits for the network: a core for it would be idle.
    threads: 0
    resources:
        runtime=on_attempt(240),
        downloads=1,
    params:
        source=settings_of("repo", "revisions"),
        leave_out=config["hub"]["duplicates"] == "leave_out",
        duplicates=DUPLICATES,
        # One more damaged download makes the param another one: the next run fetches what this one got damaged.
        damaged=lambda wildcards: last_attempt(**wildcards).get("damaged", 0),
        code=code_of("fetch.py"),
    message:
        "Fetching {wildcards.model} at {wildcards.span}"
    script:
        "../../scripts/fetch.py"


rule release:
    input:
        consumers,
        manifest=MANIFEST,
    output:
        touch(RELEASED),
    log:
        f"{LOGS}/release/{{model}}/{{span}}.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        code=code_of("release.py"),
    message:
        "Removing {wildcards.model} at {wildcards.span} from the cache"
    script:
        "../../scripts/release.py"
