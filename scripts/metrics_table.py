"""Every metric of every checkpoint: measured here, the training loss from the logs, and what the user joins in."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import _job
from toposcale.io import lm_eval, schemas, tables


def main(snakemake):
    params, given = snakemake.params, snakemake.input
    parts = [tables.gather(schemas.METRICS, _job.siblings(given.metrics, params.steps))]
    parts += [training_losses(path, params.checkpoints[Path(path).stem]) for path in given.training]
    parts += [tables.read_user_table(schemas.METRICS, path) for path in given.tables]
    [folder] = params.harness
    if folder:
        models = {
            name: lm_eval.Evaluated(settings.get("repo"), settings.get("revisions", "step{step}"))
            for name, settings in params.evaluated.items()
        }
        parts.append(tables.from_rows(schemas.METRICS, lm_eval.read_folder(folder, models, tasks=params.tasks)))
    rows = tables.drop_checkpoints(pa.concat_tables(parts), _job.duplicates(given.left_out))
    tables.write(tables.sort(schemas.METRICS, rows), snakemake.output[0], _job.provenance(snakemake))


def training_losses(path, steps):
    """The loss of each checkpoint's weights on the batch of its step."""
    log = tables.read(schemas.TRAINING, path)
    log = log.filter(pc.is_in(log["step"], pa.array(steps)))
    return pa.table(
        {
            "model": [Path(path).stem] * len(log),
            "step": log["step"],
            "metric": ["training_loss"] * len(log),
            "value": log["loss"],
        },
        schema=schemas.METRICS.schema,
    )


if __name__ == "__main__":
    _job.run(main, snakemake)
