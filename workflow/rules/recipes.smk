# The rules that are their recipe and no more: the corpus, training logs, what compares the checkpoints of a model, every
# table, also as CSV, and the explorer. The recipes are in workflow/parts.py and workflow/run_tables.py.


# `params` is the recipe while a rule is read, and the params of a job while it runs: both tell the script.
for rule_name, params in RECIPES.rules.items():
    [output, *_] = params.outputs.values()
    log_name = Path(rule_name, *(key for key in ("{model}", "{table}") if key in output))

    rule:
        name:
            rule_name
        input:
            **RECIPES.inputs(rule_name),
        output:
            **params.outputs,
        log:
            f"{PATHS.logs}/{log_name}.log",
        wildcard_constraints:
            model=PLAN.wildcard_regex(params.models),
        localrule: params.is_local
        conda:
            "../../envs/toposcale.yaml"
        resources:
            mem_mb=on_attempt(2000),
            runtime=on_attempt(60),
        params:
            **RECIPES.params(rule_name),
            script=params.script,
        message:
            params.title
        script:
            f"../../scripts/{params.script}"
