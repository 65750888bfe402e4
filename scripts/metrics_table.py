"""Every metric of every checkpoint: measured here, the training loss from the logs, and what the user joins in."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import job
from toposcale import harness, tables


def main(snakemake):
    params, given = snakemake.params, snakemake.input
    parts = [tables.gather(tables.METRICS, given.metrics)]
    parts += [training_losses(path, params.steps[Path(path).stem]) for path in given.training]
    parts += [tables.read_user_table(tables.METRICS, path) for path in given.tables]
    [folder] = params.harness
    if folder:
        models = {
            name: harness.Evaluated(settings.get("repo"), settings.get("revisions", "step{step}"))
            for name, settings in params.evaluated.items()
        }
        parts.append(tables.from_rows(tables.METRICS, harness.read_folder(folder, models)))
    rows = tables.without(pa.concat_tables(parts), job.duplicates(given.left_out))
    tables.write(tables.sort(tables.METRICS, rows), snakemake.output[0], job.provenance(snakemake))


def training_losses(path, steps):
    """The loss of each checkpoint's weights on the batch of its step."""
    log = tables.read(tables.TRAINING, path)
    log = log.filter(pc.is_in(log["step"], pa.array(steps)))
    return pa.table(
        {
            "model": [Path(path).stem] * len(log),
            "step": log["step"],
            "metric": ["training_loss"] * len(log),
            "value": log["loss"],
        },
        schema=tables.METRICS.schema,
    )


if __name__ == "__main__":
    job.run(main, snakemake)
