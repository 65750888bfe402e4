"""Tables of a run as pandas frames, read by name, and what an analysis makes, written."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

import _job
from toposcale.features.registry import is_uncertainty
from toposcale.io import schemas, tables


def read(path):
    """One Parquet table, its content checked."""
    return tables.read_checked(path).to_pandas()


def read_features(path):
    """The features table without the spreads: they say how sure a feature is, and are not features themselves."""
    features = read(path)
    return features[~features["feature"].map(is_uncertainty).astype(bool)]


def read_training(paths):
    """The training logs, a file a model, as one frame with the model's name in a column."""
    logs = {Path(path).stem: read(path) for path in paths}
    nothing = schemas.TABLES["training"].schema.empty_table().to_pandas().assign(model="")
    return pd.concat([nothing, *(log.assign(model=model) for model, log in logs.items())], ignore_index=True)


def read_published(path):
    """The published values: a CSV file in which values are text ("<1e-24" is one)."""
    return pd.read_csv(path, dtype={"value": str, "table": str})


_READERS = {"features": read_features, "training": read_training, "published": read_published}


def read_inputs(snakemake, names):
    """The inputs of those names as frames; empty for a table of the fresh run while that is not there."""
    frames = {}
    for name in names:
        read_it, path = _READERS.get(name.removeprefix("fresh_"), read), snakemake.input[name]
        frames[name] = read_it(path) if path or not name.startswith("fresh_") else pd.DataFrame()
    return frames


def write(snakemake, frames, **more):
    """Each frame as Parquet, and the same rows as CSV for people: the outputs `{name}` and `{name}_csv`.

    more: what else stands in the metadata of the Parquet files.
    """
    metadata = _job.provenance(snakemake) | more
    for name, frame in frames.items():
        table = schemas.TABLES[name]
        data = pa.Table.from_pandas(frame[table.names], table.schema, preserve_index=False)
        tables.write(data, snakemake.output[name], metadata)
        tables.write_csv(data, snakemake.output[f"{name}_csv"])
