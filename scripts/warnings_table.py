"""Gather the warnings of a run with their remedies: missing checkpoints, NaN, duplicates, unknown names."""

from pathlib import Path

import _job
import _tables
from toposcale.analysis import warnings
from toposcale.io import files, tables
from toposcale.io.files import read_noted


def dropped(characters):
    """Return warnings on the characters of the corpus that the tokenizer dropped."""
    remedy = "set corpus.tokenizer: bpe, which keeps them, or take them out of the text"
    return [
        _job.note("", f"corpus: the {name} text", f"{count} characters are not ASCII and were dropped", remedy)
        for name, count in characters.items()
        if count
    ]


def unread(states):
    """Return warnings on the last states of a Trainer, where they are damaged; the reasons by model and step."""
    return [
        _job.note(
            model,
            "training log",
            reason,
            f"its losses are not read; copy the file again, or name a file with all losses as models.{model}.losses",
            step=step,
        )
        for model, reasons in states.items()
        for step, reason in reasons.items()
    ]


def changed(manifests):
    """Yield warnings on published checkpoints of which the Hub, listed again, serves something else than was measured."""
    for path in map(Path, manifests):
        fact, model = files.read_json(path), path.parent.name
        listed_checkpoints = read_noted(path.with_name("revisions.json")).get("checkpoints", {})
        current = listed_checkpoints.get(str(fact["step"]), {})
        if "commit" in fact and any(current.get(key) != fact[key] for key in ("commit", "repeats")):
            serves = f"commit {current['commit'][:12]}" if "commit" in current else "none that can be used"
            serves += f", which has the weights of {current['repeats']}" if current.get("repeats") else ""
            name = f"{fact['repo']}, revision {fact['revision']}"
            change = f"{name}: commit {fact['commit'][:12]} was fetched; now it is {serves}"
            yield _job.note(model, "checkpoint", change, f"to measure that one run again with AGAIN={path}")


def count_missing(warning_rows):
    """Return the number of missing checkpoints in the rows, without those that repeat another one."""
    return len({(row["model"], row["step"]) for row in warning_rows if row["is_missing"]})


@_job.script
def main(snakemake):
    inputs, params = snakemake.input, snakemake.params
    warning_rows = [row for model, reasons in params.missing.items() for row in _job.missing(model, reasons)]
    warning_rows += unread(params.unread_states)
    warning_rows += tables.read_warnings(inputs.features) + tables.read_warnings(inputs.metrics)
    warning_rows += changed(inputs.manifests)
    for path in inputs.corpus:
        warning_rows += dropped(files.read_json(path)["dropped_characters"])
    features, metrics = _tables.read_features(inputs.features), _tables.read(inputs.metrics)
    table = warnings.warning_table(features, metrics, warning_rows)
    # For the last line of the run.
    _tables.write(snakemake, {"warnings": table}, left_out=str(count_missing(warning_rows)))
