"""Embed the probe texts with checkpoints of one model; compute topology, spectra and perplexity."""

import logging
from functools import partial

import numpy as np

import _job
from _checkpoints import noted_if_missing
from toposcale import checkpoints
from toposcale.checkpoints import language_models
from toposcale.features import embeddings
from toposcale.features.divergences import Cloud, save_clouds
from toposcale.io import schemas, tables
from toposcale.io.errors import SharedError, UserError
from toposcale.training import corpus
from toposcale.training.trainer import configure_torch

# Of a checkpoint that could not be measured.
NO_TEXTS = Cloud(np.empty((0, 1)), np.empty(0, np.int64))


def measure(checkpoint, settings, tokenizer_folder, text, threads):
    """Return the embedded texts of a checkpoint, their features and diagrams by layer, and its perplexity."""
    path, device = checkpoints.locate(checkpoint), configure_torch(settings["device"], threads)
    loaded = language_models.load_model(path, dtype=settings["dtype"], device=str(device))
    tokenizer = None
    if path.is_dir():  # otherwise it was trained here, with the corpus' tokenizer
        tokenizer = language_models.load_tokenizer(tokenizer_folder or path, loaded.vocab_size)
    tokens = tokens_of(loaded, tokenizer, text, settings)
    forward = embeddings.forward_pass(
        loaded,
        list(tokens.values()),
        all_layers=settings["layers"] == "all",
        progress=partial(_job.progress, unit="batches of texts"),
    )
    summary = embeddings.EmbeddingSettings(settings["components"], settings["repeats"])
    features, diagrams = embeddings.compute_features(forward.embeddings, summary, precision=forward.precision)
    cloud = Cloud(forward.embeddings[schemas.ALL_LAYERS], np.array(list(tokens)))
    return cloud, features, diagrams, forward.perplexity


def tokens_of(model, tokenizer, text, settings):
    """Return the tokens of the probe texts by number; a model that was trained here uses the corpus' tokenizer."""
    texts = text.probe_texts[: settings["texts"]]
    if len(texts) < settings["texts"]:
        logging.warning("%d probe texts, not %d: the validation text has no more", len(texts), settings["texts"])
    if len(texts) < 5:
        raise SharedError(
            f"corpus.validation: {len(texts)} probe texts of at least 100 characters, but embeddings need 5; "
            "give a longer validation text, or set embeddings.enabled: false"
        )
    length = min(settings["max_tokens"], model.context)
    if tokenizer:
        tokens = embeddings.tokenize(texts, tokenizer, tokens=length)
    else:
        tokens = [text.encode(probe)[:length].tolist() for probe in texts]
    long_enough = {number: text_tokens for number, text_tokens in enumerate(tokens) if len(text_tokens) >= 2}
    if len(long_enough) < 5:
        raise UserError(
            f"its tokenizer gives two tokens or more for {len(long_enough)} of the {len(texts)} probe texts, "
            "but embeddings need 5"
        )
    return long_enough


@_job.script
def main(snakemake):
    settings, model = snakemake.params.settings, snakemake.wildcards.model
    text = corpus.load_corpus(snakemake.input.corpus)
    tokenizer = next(iter(snakemake.params.tokenizer), None)
    rows, warning_rows = {"features": [], "diagrams": [], "metrics": []}, []
    clouds = dict.fromkeys(snakemake.params.steps, NO_TEXTS)
    for step, file in zip(snakemake.params.steps, snakemake.input.checkpoints, strict=True):
        with noted_if_missing(snakemake, "embeddings", step, file, warning_rows):
            cloud, features, diagrams, perplexity = measure(file, settings, tokenizer, text, snakemake.threads)
            identifiers = {"model": model, "step": step}
            clouds[step] = cloud
            metrics = [{**identifiers, "metric": "perplexity", "value": perplexity}]
            rows["features"].append(tables.feature_rows(features, source="embeddings", **identifiers))
            rows["diagrams"].append(tables.diagram_rows(diagrams, source="embeddings", **identifiers))
            rows["metrics"].append(tables.from_rows(schemas.TABLES["metrics"], metrics))
    save_clouds(snakemake.output.clouds, clouds, _job.provenance(snakemake))
    _job.write(snakemake, rows, warning_rows)
