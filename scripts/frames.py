"""Tables as pandas frames, for the scripts of analyses and figures."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

import job
from toposcale import analysis_tables, tables


def read(path):
    """One Parquet table."""
    return pd.read_parquet(path)


def read_features(path):
    """The features table without the spreads: they say how sure a feature is, and are not features themselves."""
    features = read(path)
    return features[~features["feature"].str.endswith("_spread")]


def read_training(paths):
    """The training logs, a file a model, as one frame with the model's name in a column."""
    logs = {Path(path).stem: read(path) for path in paths}
    nothing = tables.TRAINING.schema.empty_table().to_pandas().assign(model="")
    return pd.concat([nothing, *(log.assign(model=model) for model, log in logs.items())], ignore_index=True)


def read_vectors(paths):
    """Vectorised diagrams by model and name, a row a step, from a file a model."""
    found = {}
    for path in paths:
        for name, rows in read(path).groupby("vector"):
            wide = rows.pivot(index="step", columns="index", values="value").sort_index()
            found.setdefault(Path(path).stem, {})[f"weights/{name}"] = wide
    return found


def read_histories(inputs):
    """What every forecaster reads: one history a model, from the inputs features, metrics, training and models.

    Where vectors are an input they join the features of each model.
    """
    from toposcale.forecasting.evaluation import histories_from_tables

    return histories_from_tables(
        read_features(inputs.features),
        read(inputs.metrics),
        read_training(inputs.training),
        read(inputs.models),
        vectors=read_vectors(inputs.get("vectors", [])),
    )


def write(snakemake, **analyses):
    """Each analysis as Parquet, and the same rows as CSV for people: the outputs `{name}` and `{name}_csv`."""
    metadata = job.provenance(snakemake)
    for name, frame in analyses.items():
        table = analysis_tables.BY_NAME[name]
        if list(frame.columns) != table.schema.names and len(frame):
            raise ValueError(
                f"{name}: columns {list(frame.columns)}, but its schema has {table.schema.names}"
            )
        # An analysis that found nothing to analyse may not know its columns.
        data = pa.Table.from_pandas(
            frame.reindex(columns=table.schema.names), table.schema, preserve_index=False
        )
        data = tables.sort(table, data)
        tables.write(data, snakemake.output[name], metadata)
        tables.write_csv(data, snakemake.output[f"{name}_csv"])


def write_nothing(snakemake):
    """Every output of the rule without a row: in a run of loss curves alone there is no feature to analyse."""
    names = [name for name in snakemake.output.keys() if not name.endswith("_csv")]  # noqa: SIM118
    write(snakemake, **{name: pd.DataFrame() for name in names})
