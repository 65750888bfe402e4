# Checkpoints that others published: compared, fetched and checked, and removed again where they are not to be kept.
# The keys of `hub:` say how files are fetched, not which, so the scripts read them from the configuration: as params
# they would make every checkpoint new.

MANIFEST = f"{RUN}/checkpoints/{{model}}/step-{{step}}.json"
DUPLICATES = f"{RUN}/checkpoints/{{model}}/duplicates.json"
RELEASED = f"{RUN}/checkpoints/{{model}}/step-{{step}}.released"


localrules:
    duplicates,
    fetch,
    release,


rule duplicates:
    output:
        DUPLICATES,
    log:
        f"{LOGS}/duplicates/{{model}}.log",
    wildcard_constraints:
        model=one_of(PUBLISHED),
    # First of all that is ready and alone, so before any download; but no input of `fetch`, or a step that is added
    # would fetch every other one again.
    priority: 10**12
    conda:
        "../../envs/toposcale.yaml"
    threads: workflow.resource_settings.cores or 1
    resources:
        runtime=on_attempt(30),
    params:
        source=settings_of("repo", "revisions", "steps"),
        code=fingerprint("duplicates.py"),
    message:
        "Comparing the revisions of {wildcards.model}"
    script:
        "../../scripts/duplicates.py"


rule fetch:
    output:
        MANIFEST,
    log:
        f"{LOGS}/fetch/{{model}}/step-{{step}}.log",
    conda:
        "../../envs/toposcale.yaml"
    resources:
        runtime=on_attempt(240),
    params:
        source=settings_of("repo", "revisions"),
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
