"""One row a model: what it is, how large, how many tokens it sees a step, where its training ends; and the plans."""

import _job
import _models
from toposcale.io import schemas, tables
from toposcale.statistics.testable import warmup_of


def main(snakemake):
    params, given = snakemake.params, snakemake.input
    weights = dict(zip(params.with_weights, given.checkpoints, strict=True))
    curves = dict(zip(params.with_curve, given.curves, strict=True))
    logs = {
        name: tables.read(schemas.TRAINING, path)
        for name, path in zip(params.with_log, given.logs, strict=True)
    }
    rows, schedules = [], []
    for name, facts in params.models.items():
        log = logs.get(name, schemas.TRAINING.schema.empty_table())
        steps, rates = (log[column].to_numpy() for column in ("step", "learning_rate"))
        last = int(steps.max()) if name in curves and len(steps) else None
        row = _models.row(name, facts, weights=weights.get(name), curve=curves.get(name), last_logged=last)
        if name in curves and len(steps):
            row.setdefault("warmup_steps", warmup(steps, rates))
        row, plan = _models.planned(row, facts, steps, rates)
        rows.append(row)
        schedules += plan
    metadata = _job.provenance(snakemake)
    tables.write(tables.from_rows(schemas.MODELS, rows), snakemake.output.models, metadata)
    tables.write(tables.from_rows(schemas.SCHEDULES, schedules), snakemake.output.schedules, metadata)


def warmup(steps, rates):
    found = warmup_of(steps, rates)
    return None if found is None else int(found)


if __name__ == "__main__":
    _job.run(main, snakemake)
