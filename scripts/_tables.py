"""Read the tables of a run as pandas frames, and write the results of an analysis."""

from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa

import _job
from toposcale.features.feature import is_uncertainty
from toposcale.io import schemas, tables


def read(path):
    """Read a Parquet table and verify its checksums."""
    return tables.read_checked(path).to_pandas()


def read_features(path):
    """Read the features table without the uncertainties of features."""
    features = read(path)
    return features[~features["feature"].isin([name for name in features["feature"].unique() if is_uncertainty(name)])]


def read_training(paths):
    """Read the training logs, one file per model, as one frame with a column for the model."""
    logs = {Path(path).stem: read(path) for path in paths}
    empty = schemas.TABLES["training"].schema.empty_table().to_pandas().assign(model="")
    return pd.concat([empty, *(log.assign(model=model) for model, log in logs.items())], ignore_index=True)


_READERS = {
    "features": read_features,
    "training": read_training,
    "published": partial(pd.read_csv, dtype={"value": str, "table": str}),  # values such as "<1e-24"
}


def read_inputs(snakemake, names):
    """Read the named inputs as frames."""
    return {name: _READERS.get(name, read)(snakemake.input[name]) for name in names}


def write(snakemake, frames, **metadata):
    """Write each frame as Parquet (output `{name}`, with `more` in its metadata) and as CSV (`{name}_csv`)."""
    metadata = _job.provenance(snakemake) | metadata
    for name, frame in frames.items():
        table = schemas.TABLES[name]
        data = pa.Table.from_pandas(frame[table.names], table.schema, preserve_index=False)
        tables.write(data, snakemake.output[name], metadata)
        tables.write_csv(data, snakemake.output[f"{name}_csv"])
