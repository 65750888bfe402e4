"""Checkpoints of one model over the probe texts: embeddings, their topology and spectra, and the perplexity."""

import logging
from functools import partial

import numpy as np

import _clouds
import _job
from toposcale import checkpoints
from toposcale.checkpoints import language_models
from toposcale.features import embeddings
from toposcale.features.divergences import Cloud
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError
from toposcale.training import corpus
from toposcale.training.trainer import configure_torch


def main(snakemake):
    settings, model = snakemake.params.settings, snakemake.wildcards.model
    text = corpus.load_corpus(snakemake.input.corpus)
    [tokenizer] = snakemake.params.tokenizer or [None]
    rows, clouds, noted = {"features": [], "diagrams": [], "metrics": []}, {}, []
    for step, loaded in _job.measured(
        snakemake, "embeddings", noted, load, settings, tokenizer, snakemake.threads
    ):
        where = {"model": model, "step": step}
        clouds[step] = Cloud.nothing()
        features, diagrams, metrics = {}, {}, []
        if loaded:
            texts, passed = embed(*loaded, text, settings)
            clouds[step] = Cloud(passed.embeddings[schemas.ALL_LAYERS], np.array(texts))
            summary = embeddings.Settings(settings["components"], settings["repeats"])
            features, diagrams = embeddings.compute_features(
                passed.embeddings, summary, model=model, precision=passed.precision
            )
            metrics = [{**where, "metric": "perplexity", "value": passed.perplexity}]
        rows["features"].append(tables.feature_rows(features, source="embeddings", **where))
        rows["diagrams"].append(tables.diagram_rows(diagrams, source="embeddings", **where))
        rows["metrics"].append(tables.from_rows(schemas.TABLES["metrics"], metrics))
    _clouds.write(snakemake.output.clouds, clouds, _job.provenance(snakemake))
    _job.write(snakemake, rows, noted)


def load(checkpoint, settings, tokenizer_folder, threads):
    """The model of a checkpoint, and its tokenizer: None for that of the corpus."""
    path, device = checkpoints.locate(checkpoint), configure_torch(settings["device"], threads)
    model = language_models.load_model(path, dtype=settings["dtype"], device=str(device))
    if not path.is_dir():
        return model, None
    tokenizer = language_models.load_tokenizer(tokenizer_folder or path, model.vocab_size)
    return model, tokenizer


def embed(model, tokenizer, text, settings):
    """One forward pass of a model over the probe texts, and which of them it read."""
    tokens = tokens_of(model, tokenizer, text, settings)
    passed = embeddings.forward_pass(
        model,
        list(tokens.values()),
        all_layers=settings["layers"] == "all",
        progress=partial(_job.progress, what="batches of texts"),
    )
    return list(tokens), passed


def tokens_of(model, tokenizer, text, settings):
    """The probe texts by number, by the model's own tokenizer: the corpus' for a model that was trained here."""
    texts = text.probe_texts[: settings["texts"]]
    if len(texts) < settings["texts"]:
        logging.warning(
            "%d probe texts, not %d: the validation text has no more", len(texts), settings["texts"]
        )
    length = min(settings["max_tokens"], model.context)
    if tokenizer:
        tokens = embeddings.tokenize(texts, tokenizer, tokens=length)
    else:
        tokens = [text.encode(one)[:length].tolist() for one in texts]
    kept = {number: one for number, one in enumerate(tokens) if len(one) >= 2}
    if len(kept) < 5:
        raise UserError(
            f"corpus.validation: {len(kept)} probe texts of at least 100 characters, but embeddings need 5; "
            "give a longer validation text, or set embeddings.enabled: false"
        )
    return kept


if __name__ == "__main__":
    _job.run(main, snakemake)
