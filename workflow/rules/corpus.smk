# The text: read or fetched once, split, tokenised. Here and not on a cluster's node, which may have no way to the network.


rule corpus:
    input:
        **RECIPES.inputs("corpus"),
    output:
        tokens=PATHS.tokens,
        description=PATHS.corpus,
    log:
        f"{PATHS.logs}/corpus.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        **RECIPES.params("corpus"),
    message:
        "Corpus: {params.source}, {params.tokenizer}"
    script:
        "../../scripts/corpus.py"
