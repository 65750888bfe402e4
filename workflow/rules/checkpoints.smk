# Checkpoints that others published: compared, fetched and checked, and removed again where they are not to be kept.
# The keys of `hub:` say how files are fetched, not which. The scripts read them from the configuration: if they were
# params, a changed timeout would fetch every checkpoint again.

import json

MANIFEST = f"{RUN}/checkpoints/{{model}}/{{span}}.json"
SOURCE = f"{RUN}/checkpoints/{{model}}/source.json"
DUPLICATES = f"{RUN}/checkpoints/{{model}}/duplicates.json"
SIZE = f"{RUN}/checkpoints/{{model}}/{{span}}.size.json"
TURN = f"{RUN}/checkpoints/{{model}}/{{span}}.turn"
RELEASED = f"{RUN}/checkpoints/{{model}}/{{span}}.released"


rule duplicates:
    output:
        DUPLICATES,
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


# Which repository the checkpoints are of. The rule fetch reads it as a file: another repository then fetches every
# checkpoint again. As params of fetch, Snakemake would not compare them where an input that is `ancient` is out of date.
rule source:
    output:
        SOURCE,
    log:
        f"{LOGS}/source/{{model}}.log",
    wildcard_constraints:
        model=one_of(PUBLISHED),
    localrule: True
    params:
        source=settings_of("repo", "revisions"),
    message:
        "Where {wildcards.model} is published"
    run:
        Path(output[0]).write_text(json.dumps(params.source) + "\n", encoding="utf-8")


# At most `hub.resident` checkpoints are in the cache at a time, where they are removed again: a checkpoint is fetched once
# the one `hub.resident` places before it was removed.
rule turn:
    input:
        resident_before,
    output:
        temp(touch(TURN)),
    message:
        "Room for {wildcards.model} at {wildcards.span}"


# `ancient`: a checkpoint is not fetched again because revisions were compared, or others removed, after it was fetched.
rule fetch:
    input:
        SOURCE,
        turn=ancient(TURN),
        duplicates=ancient(DUPLICATES),
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
        # One more damaged download makes the param another one: the next run fetches what this one got damaged.
        damaged=lambda wildcards: last_attempt(wildcards).get("damaged", 0),
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
