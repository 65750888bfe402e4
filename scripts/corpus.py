"""Tokenize the text, and describe it in a small file for people."""

import logging

import _job
from toposcale.training import corpus


@_job.script
def main(snakemake):
    params, inputs = snakemake.params, snakemake.input
    text = corpus.build_corpus(
        params.source,
        params.tokenizer,
        context=params.context,
        vocab_size=params.vocab_size,
        train=list(inputs.train),
        validation=list(inputs.validation),
    )
    if dropped := {split: count for split, count in text.dropped.items() if count}:
        logging.warning("characters that are not ASCII were dropped: %s", dropped)
    facts = {name: getattr(text, name) for name in ("source", "tokenizer", "vocab_size")}
    facts["tokens"] = {"train": len(text.train), "validation": len(text.validation)}
    facts |= {"dropped_characters": dict(text.dropped), "sha256": dict(text.sha256)}
    _job.write_json(snakemake.output.description, facts, indent=2)
    corpus.save_corpus(text, snakemake.output.tokens, {"digest": params.digest})
