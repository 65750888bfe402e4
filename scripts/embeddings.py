"""One forward pass of a checkpoint over the probe texts: embeddings, their topology and spectra, and the perplexity."""

import logging

import job
from toposcale import checkpoints, corpus, embeddings, language_models, tables
from toposcale.errors import UserError
from toposcale.training import configure_torch


def main(snakemake):
    settings, wildcards = snakemake.params.settings, snakemake.wildcards
    where = {"model": wildcards.model, "step": int(wildcards.step)}
    path = checkpoints.locate(snakemake.input.checkpoint)
    model = language_models.load_model(
        path, dtype=settings["dtype"], device=str(configure_torch(settings["device"]))
    )
    tokens = tokens_of(path, model, corpus.load_corpus(snakemake.input.corpus), settings)
    passed = embeddings.forward_pass(model, tokens, all_layers=settings["layers"] == "all")
    names = ("components", "max_dimension", "repeats", "seed")
    described = embeddings.Settings(**{name: settings[name] for name in names})
    features, diagrams = embeddings.describe(passed.embeddings, described, model=wildcards.model)
    metadata = job.provenance(snakemake)
    output = snakemake.output
    tables.write(tables.feature_rows(features, source="embeddings", **where), output.features, metadata)
    tables.write(tables.diagram_rows(diagrams, source="embeddings", **where), output.diagrams, metadata)
    row = {**where, "metric": "perplexity", "value": passed.perplexity}
    tables.write(tables.from_rows(tables.METRICS, [row]), output.metrics, metadata)


def tokens_of(path, model, text, settings):
    """The probe texts by the model's own tokenizer: the corpus' for a model that was trained here."""
    texts = text.probe_texts[: settings["texts"]]
    if len(texts) < settings["texts"]:
        logging.warning(
            "%d probe texts, not %d: the validation text has no more", len(texts), settings["texts"]
        )
    length = min(settings["max_tokens"], model.context)
    if path.is_dir():
        tokenizer = language_models.load_tokenizer(path, model.vocab_size)
        tokens = embeddings.tokenize(texts, tokenizer, tokens=length)
    else:
        tokens = [text.encode(one)[:length].tolist() for one in texts]
    kept = [one for one in tokens if len(one) >= 2]
    if len(kept) < 5:
        raise UserError(
            f"corpus.validation: {len(kept)} probe texts of at least 100 characters, but embeddings need 5; "
            "give a longer validation text, or set embeddings.enabled: false"
        )
    return kept


if __name__ == "__main__":
    job.run(main, snakemake)
