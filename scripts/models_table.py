"""Tables of the models and of their learning-rate schedules, from the configuration and its files."""

import _job
from toposcale.analysis.model_rows import fetched_sizes, rows_of_model
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    params, inputs = snakemake.params, snakemake.input
    weights = dict(zip(params.with_weights, inputs.checkpoints, strict=True))
    curves = dict(zip(params.with_curve, inputs.curves, strict=True))
    logs = dict(zip(params.with_log, inputs.logs, strict=True))
    schedule_tables = dict(zip(params.with_schedule, inputs.schedules, strict=True))
    sizes = fetched_sizes(inputs.sizes)
    rows, schedules = [], []
    for name, facts in params.models.items():
        sources = {"weights": weights.get(name), "n_parameters": sizes.get(name), "curve": curves.get(name)}
        if name in logs:
            log = tables.read(schemas.TABLES["training"], logs[name])
            sources |= {"steps": log["step"].to_numpy(), "rates": log["learning_rate"].to_numpy()}
            stored = tables.read_metadata(logs[name])
            sources["columns_of_log"] = {key: text for key, text in stored.items() if key.startswith("log_")}
        if name in schedule_tables:
            table = tables.read(schemas.TABLES["schedules"], schedule_tables[name])
            rows_of_file = {"at": table["step"].to_pylist(), "values": table["learning_rate"].to_pylist()}
            facts = {**facts, "schedule": rows_of_file}
        of_model = rows_of_model(name, facts, **sources)
        rows.append(of_model.model)
        schedules += of_model.schedule
    metadata = _job.provenance(snakemake)
    tables.write(tables.from_rows(schemas.TABLES["models"], rows), snakemake.output.models, metadata)
    tables.write(tables.from_rows(schemas.TABLES["schedules"], schedules), snakemake.output.schedules, metadata)
