# The text: read or fetched once, split, tokenised. Here and not on a cluster's node, which may have no way to the network.


rule corpus:
    input:
        train=corpus_files("train"),
        validation=corpus_files("validation"),
    output:
        tokens=f"{RUN}/corpus/tokens.safetensors",
        description=f"{RUN}/corpus/corpus.json",
    log:
        f"{LOGS}/corpus.log",
    localrule: True
    conda:
        "../../envs/toposcale.yaml"
    params:
        source=config["corpus"]["source"],
        tokenizer=config["corpus"]["tokenizer"],
        vocab_size=config["corpus"]["vocab_size"],
        context=config["training"]["context"],
        code=code_of("corpus.py"),
    message:
        "Corpus: {params.source}, {params.tokenizer}"
    script:
        "../../scripts/corpus.py"
