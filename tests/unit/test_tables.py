"""Tables: the same bytes for the same rows, nothing half-written, and damage named."""

import csv
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toposcale.io import schemas, tables
from toposcale.io.errors import UserError

VALUES = {
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    "count": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "number": st.floats() | st.integers(-9, 9),
}

ROWS = [
    {"model": model, "step": step, "metric": metric, "value": value}
    for model, step, metric, value in [
        ("b", 10, "loss", 1.0),
        ("a", 100, "loss", 2.0),
        ("a", 20, "loss", float("nan")),
        ("a", 20, "accuracy", 0.5),
    ]
]


def test_the_order_of_the_rows_does_not_show(tmp_path):
    paths = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    for path, rows in zip(paths, [ROWS, ROWS[::-1]], strict=True):
        tables.write(tables.from_rows(schemas.TABLES["metrics"], rows), path, {"b": "2", "a": "1"})
    assert paths[0].read_bytes() == paths[1].read_bytes()
    read = tables.read(schemas.TABLES["metrics"], paths[0])
    assert read["step"].to_pylist() == [20, 20, 100, 10]
    assert read["metric"].to_pylist() == ["accuracy", "loss", "loss", "loss"]


def test_a_text_that_a_spreadsheet_would_run_is_a_text_in_the_csv(tmp_path):
    names = ["=1+1", "+a", "-b", "@c", "a-b", "a=b", "\tx", None, ""]
    tables.write_csv(pa.table({"model": names, "value": [-1.5] * len(names)}), tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as file:
        _, *rows = csv.reader(file)
    expected = ["'=1+1", "'+a", "'-b", "'@c", "a-b", "a=b", "'\tx", "", ""]
    assert rows == [[name, "-1.5"] for name in expected]


def test_gathering_is_the_same_as_writing_at_once(tmp_path):
    for i, row in enumerate(ROWS):
        tables.write(tables.from_rows(schemas.TABLES["metrics"], [row]), tmp_path / f"{i}.parquet")
    gathered = tables.gather(schemas.TABLES["metrics"], [tmp_path / f"{i}.parquet" for i in (2, 0, 3, 1)])
    tables.write(gathered, tmp_path / "gathered.parquet")
    tables.write(tables.from_rows(schemas.TABLES["metrics"], ROWS), tmp_path / "at_once.parquet")
    assert (tmp_path / "gathered.parquet").read_bytes() == (tmp_path / "at_once.parquet").read_bytes()


def test_nan_survives(tmp_path):
    tables.write(tables.from_rows(schemas.TABLES["metrics"], ROWS), tmp_path / "t.parquet")
    values = tables.read(schemas.TABLES["metrics"], tmp_path / "t.parquet")["value"].to_numpy()
    assert np.isnan(values[1])
    assert values[0] == 0.5


def test_metadata_is_kept(tmp_path):
    tables.write(tables.from_rows(schemas.TABLES["metrics"], ROWS), tmp_path / "t.parquet", {"seed": "42"})
    assert tables.read_metadata(tmp_path / "t.parquet") == {"seed": "42"}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    tables.write(tables.from_rows(schemas.TABLES["metrics"], ROWS), path)
    before = path.read_bytes()

    def disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", disk_full)
    with pytest.raises(UserError, match=r"t\.parquet: not written \(no space left on device\)"):
        tables.write(tables.from_rows(schemas.TABLES["metrics"], ROWS[:1]), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"", lambda data: b"x" + data[1:-1] + b"x"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "t.parquet"
    tables.write(tables.from_rows(schemas.TABLES["metrics"], ROWS), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"t\.parquet: not a readable Parquet file"):
        tables.read(schemas.TABLES["metrics"], path)


@pytest.mark.parametrize("kept", ["metadata", "rows"])
def test_read_checked_refuses_a_file_that_was_edited(tmp_path, kept):
    rows = [{"model": "a", "step": step, "metric": "loss", "value": value} for step, value in ((0, 1.0), (1, None))]
    path = tmp_path / "t.parquet"
    tables.write(tables.from_rows(schemas.TABLES["metrics"], rows), path, {"digest": "1"})
    assert len(tables.read_checked(path)) == 2
    data = pq.read_table(path)
    if kept == "metadata":
        edited = data.slice(1)
    else:
        edited = data.replace_schema_metadata({**data.schema.metadata, b"digest": b"2"})
    pq.write_table(edited, path)
    with pytest.raises(UserError, match=r"t\.parquet: not a readable .*its checksum does not match.*delete it"):
        tables.read_checked(path)


def test_a_table_of_another_kind_is_named(tmp_path):
    tables.write(tables.from_rows(schemas.TABLES["metrics"], ROWS), tmp_path / "t.parquet")
    with pytest.raises(UserError, match="a features table has"):
        tables.read(schemas.TABLES["features"], tmp_path / "t.parquet")


def test_feature_and_diagram_rows():
    where = {"model": "m", "step": 3, "source": "weights"}
    features = tables.feature_rows({"b": {"x": 1.0}, "a": {"y": 2.0, "x": 3.0}}, **where)
    assert features.select(["layer", "feature", "value"]).to_pydict() == {
        "layer": ["a", "a", "b"],
        "feature": ["x", "y", "x"],
        "value": [3.0, 2.0, 1.0],
    }
    bars = {"a": [np.array([[0.0, 2.0], [0.0, 1.0]]), np.empty((0, 2))], "b": [np.array([[0.0, 5.0]])]}
    diagrams = tables.diagram_rows(bars, **where)
    assert diagrams["death"].to_pylist() == [1.0, 2.0, 5.0]
    assert diagrams["layer"].to_pylist() == ["a", "a", "b"]
    assert tables.diagram_rows({"a": [np.empty((0, 2))]}, **where).num_rows == 0


def test_an_empty_gathering_has_the_schema():
    assert tables.gather(schemas.TABLES["features"], []).schema == schemas.TABLES["features"].schema
    assert isinstance(tables.gather(schemas.TABLES["features"], []), pa.Table)


def test_rows_of_one_step_after_the_other():
    rows = [
        {"model": "a", "step": step, "metric": "loss", "value": value}
        for step, value in ((0, 1.0), (20, 2.0), (20, 3.0), (100, 4.0))
    ]
    kept = [
        (step, part["value"].to_pylist())
        for step, part in tables.by_step(tables.from_rows(schemas.TABLES["metrics"], rows))
    ]
    assert kept == [(0, [1.0]), (20, [2.0, 3.0]), (100, [4.0])]
    assert list(tables.by_step(schemas.TABLES["metrics"].schema.empty_table())) == []


def test_every_table_states_its_columns_once_with_a_meaning_and_a_key_among_them():
    assert len(schemas.TABLES) > 30
    for name, table in schemas.TABLES.items():
        assert table.name == name
        assert table.row_meaning
        assert len(set(table.names)) == len(table.names)
        assert set(table.key) <= set(table.names), name
        assert table.key, name
        assert all(column.type in ("text", "count", "flag", "number") and column.meaning for column in table.columns), (
            name
        )


def test_a_key_may_have_another_order_than_the_columns_and_a_shared_column_one_meaning():
    models, metrics = schemas.TABLES["models"], schemas.TABLES["metrics"]
    assert models.key == ("n_parameters", "model")
    assert models.names[0] == "model"
    assert models.columns[0] == metrics.columns[0] == schemas.Column("model", "text", "name of the model")


@given(st.data())
def test_rows_become_the_table_that_arrow_makes_of_them(data):
    table = schemas.TABLES[data.draw(st.sampled_from(["features", "advice", "models"]))]
    row = st.fixed_dictionaries({}, optional={column.name: st.none() | VALUES[column.type] for column in table.columns})
    rows = data.draw(st.lists(row, max_size=12))
    made = tables.from_rows(table, rows)
    made.validate(full=True)
    expected = tables.sort(table, pa.Table.from_pylist(rows, schema=table.schema))
    assert made.schema == expected.schema
    assert repr(made.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [("step", 1.5, ValueError), ("step", "1", TypeError), ("value", "1", TypeError), ("model", 1, TypeError)],
)
def test_from_rows_refuses_a_value_of_another_type(column, value, error):
    with pytest.raises(error, match=column if error is TypeError else "truncated"):
        tables.from_rows(schemas.TABLES["features"], [{column: value}])


def test_from_rows_rounds_a_count_to_a_number():
    made = tables.from_rows(schemas.TABLES["features"], [{"value": 2**60 + 1}, {"value": None}])
    assert made["value"].to_pylist() == [2.0**60, None]


def test_from_columns_refuses_text_that_32_bit_offsets_cannot_count():
    """3 GiB of zeros in three pieces, which are never read: the offsets of a column do not wrap."""
    zeros, offsets = pa.py_buffer(np.zeros(2**30, np.uint8)), pa.py_buffer(np.array([0, 2**30], np.int32))
    text = pa.chunked_array([pa.StringArray.from_buffers(1, offsets, zeros)] * 3)
    columns = {"model": text, "step": [2, 1, 3], "metric": ["loss"] * 3, "value": [1.0, 2.0, 3.0]}
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        tables.from_columns(schemas.TABLES["metrics"], columns)
