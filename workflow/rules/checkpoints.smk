# Checkpoints that others published: compared, fetched and checked, and removed again where they are not to be kept.

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
        model="|".join(map(re.escape, PUBLISHED)) or "$.",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(500),
        runtime=on_attempt(30),
    params:
        source=settings_of,
        hub=config["hub"],
        code=fingerprint("duplicates.py"),
    message:
        "Comparing the revisions of {wildcards.model} before anything is downloaded"
    script:
        "../../scripts/duplicates.py"


rule fetch:
    input:
        DUPLICATES,
    output:
        MANIFEST,
    log:
        f"{LOGS}/fetch/{{model}}/step-{{step}}.log",
    conda:
        "../../envs/toposcale.yaml"
    threads: 1
    resources:
        mem_mb=on_attempt(500),
        runtime=on_attempt(240),
    params:
        source=settings_of,
        hub=config["hub"],
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
    threads: 1
    resources:
        mem_mb=on_attempt(500),
        runtime=on_attempt(10),
    params:
        code=fingerprint("release.py"),
    message:
        "Removing {wildcards.model} at step {wildcards.step} from the cache"
    script:
        "../../scripts/release.py"
