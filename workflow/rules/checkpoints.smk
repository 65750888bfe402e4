# Checkpoints that others published: compared, fetched and checked, and removed again where they are not to be kept.
# The keys of `hub:` say how files are fetched, not which, so the scripts read them from the configuration: as params
# they would make every checkpoint new.

import json

MANIFEST = f"{RUN}/checkpoints/{{model}}/step-{{step}}.json"
SOURCE = f"{RUN}/checkpoints/{{model}}/source.json"
DUPLICATES = f"{RUN}/checkpoints/{{model}}/duplicates.json"
SIZE = f"{RUN}/checkpoints/{{model}}/step-{{step}}.size.json"
TURN = f"{RUN}/checkpoints/{{model}}/step-{{step}}.turn"
RELEASED = f"{RUN}/checkpoints/{{model}}/step-{{step}}.released"


# A checkpoint that is removed from the cache again is fetched again for whoever needs it later.
unless_kept = (lambda path: path) if config["hub"]["keep"] else temp


rule duplicates:
    output:
        DUPLICATES,
    log:
        f"{LOGS}/duplicates/{{model}}.log",
    wildcard_constraints:
        model=one_of(PUBLISHED),
    conda:
        "../../envs/toposcale.yaml"
    threads: 0
    resources:
        runtime=on_attempt(30),
        downloads=1,
    params:
        source=settings_of("repo", "revisions", "steps"),
        code=fingerprint("duplicates.py"),
    message:
        "Comparing the revisions of {wildcards.model}"
    script:
        "../../scripts/duplicates.py"


# Which repository the checkpoints are of: another one makes every checkpoint new. Snakemake does not compare the params
# of a job whose ancient inputs are made anew, so these stand in a file.
rule source:
    output:
        SOURCE,
    log:
        f"{LOGS}/source/{{model}}.log",
    wildcard_constraints:
        model=one_of(PUBLISHED),
    params:
        source=settings_of("repo", "revisions"),
    message:
        "Where {wildcards.model} is published"
    run:
        Path(output[0]).write_text(json.dumps(params.source) + "\n", encoding="utf-8")


# At most `hub.resident` checkpoints are in the cache at a time where they are removed again: each waits for the one that
# many places before it.
rule turn:
    input:
        lambda wildcards: resident_before(wildcards),
    output:
        temp(touch(TURN)),
    log:
        f"{LOGS}/turn/{{model}}/step-{{step}}.log",
    conda:
        "../../envs/toposcale.yaml"
    message:
        "Room for {wildcards.model} at step {wildcards.step}"


# `ancient`: what is compared or released later makes no checkpoint new.
rule fetch:
    input:
        SOURCE,
        turn=ancient(TURN),
        duplicates=ancient(DUPLICATES),
    output:
        manifest=unless_kept(MANIFEST),
        size=SIZE,
    log:
        f"{LOGS}/fetch/{{model}}/step-{{step}}.log",
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
        code=fingerprint("fetch.py"),
    message:
        "Fetching {wildcards.model} at step {wildcards.step}"
    script:
        "../../scripts/fetch.py"


rule release:
    input:
        consumers,
        manifest=MANIFEST,
    output:
        touch(RELEASED),
    log:
        f"{LOGS}/release/{{model}}/step-{{step}}.log",
    conda:
        "../../envs/toposcale.yaml"
    params:
        code=fingerprint("release.py"),
    message:
        "Removing {wildcards.model} at step {wildcards.step} from the cache"
    script:
        "../../scripts/release.py"
