"""Gather the metrics of all checkpoints: measured here, training losses of the logs, and what the user has."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import _job
from toposcale.analysis import lm_eval
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError
from toposcale.io.files import read_json


def each_once(rows):
    """Return rows without repetitions; raise UserError if a metric has two values at one checkpoint."""
    keys = ["model", "step", "metric"]
    unique_rows = rows.group_by(keys, use_threads=False).aggregate([("value", "count_distinct"), ("value", "first")])
    twice = unique_rows.filter(pc.greater(unique_rows["value_count_distinct"], 1))
    if len(twice):
        model, step, metric = (twice[key][0].as_py() for key in keys)
        raise UserError(
            f"{model}: {metric} has two values at step {step}; leave it out of one of its sources: its own log, "
            "metrics.tables, metrics.harness"
        )
    return unique_rows.rename_columns({"value_first": "value"}).select(rows.column_names).cast(rows.schema)


def training_losses(path, steps):
    """Return the loss of each checkpoint on the batch of its step."""
    log = tables.read(schemas.TABLES["training"], path)
    log = log.filter(pc.is_in(log["step"], pa.array(steps)))
    identifiers = {"model": Path(path).stem, "metric": "training_loss"}
    rows = [{**identifiers, "step": row["step"], "value": row["loss"]} for row in log.to_pylist()]
    return tables.from_rows(schemas.TABLES["metrics"], rows)


def duplicates(paths):
    """Return the (model, step) pairs of the manifests of checkpoints that repeat another one."""
    facts = {path: read_json(path) for path in paths}
    return {(Path(path).parent.name, fact["step"]) for path, fact in facts.items() if fact.get("repeats")}


@_job.script
def main(snakemake):
    params, inputs = snakemake.params, snakemake.input
    parts = [tables.gather(schemas.TABLES["metrics"], inputs.parts)]
    parts += [training_losses(path, params.checkpoints[Path(path).stem]) for path in inputs.training]
    parts.append(tables.from_rows(schemas.TABLES["metrics"], params.saved_losses))
    warning_rows = [row for path in inputs.parts for row in tables.read_warnings(path)]
    [folder] = params.harness
    if folder:
        models = {name: lm_eval.Evaluated(**settings) for name, settings in params.evaluated.items()}
        scores = lm_eval.read_results(folder, models, tasks=params.tasks)
        parts.append(tables.from_rows(schemas.TABLES["metrics"], scores))
    rows = tables.drop_checkpoints(pa.concat_tables(parts), duplicates(inputs.manifests))
    rows = each_once(rows.filter(pc.is_in(rows["model"], pa.array(params.models))))
    metadata = tables.with_warnings(_job.provenance(snakemake), warning_rows)
    tables.write(tables.sort(schemas.TABLES["metrics"], rows), snakemake.output[0], metadata)
