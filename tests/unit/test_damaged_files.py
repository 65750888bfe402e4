"""Files of a run in which any one byte has changed: named, or the same numbers; never other ones."""

import errno
import fcntl
import gzip
import json
import os
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch

import toposcale
from toposcale.checkpoints import Checkpoint
from toposcale.forecasting.logs import loss_curves, table_files
from toposcale.io import files, schemas, tables, tensor_files
from toposcale.io.errors import UserError
from toposcale.io.files import locked


def damaged(path):
    """The file, whole again after each visit, with one byte after the other changed."""
    whole = path.read_bytes()
    for position in range(len(whole)):
        for change in (1, 0x80):
            content = bytearray(whole)
            content[position] ^= change
            path.write_bytes(content)
            yield position
    path.write_bytes(whole)


def test_read_a_damaged_table_is_named_or_reads_as_before(tmp_path):
    path = tmp_path / "features.parquet"
    row = {"model": "a", "source": "weights", "layer": "all", "feature": "h0_total"}
    data = tables.from_rows(
        schemas.TABLES["features"], [{**row, "step": step, "value": 1.5 * step} for step in range(20)]
    )
    tables.write(data, path, {"seed": "1"})
    refused = 0
    for position in damaged(path):
        try:
            rows = tables.read(schemas.TABLES["features"], path)
        except UserError:
            refused += 1
        else:
            assert rows.equals(data), position
    assert refused > 100


@pytest.mark.parametrize(
    "read",
    [lambda path: tensor_files.read(path)[0], lambda path: dict(Checkpoint(path).matrices())],
    ids=["state", "weights"],
)
def test_read_a_damaged_checkpoint_is_named(tmp_path, read):
    path = tmp_path / "step-0.safetensors"
    tensor_files.write(path, {"w": np.arange(12.0).reshape(3, 4)}, {"model": "a", "step": "0"})
    expected, refused = read(path), []
    for position in damaged(path):
        try:
            rows = read(path)
        except UserError as error:
            refused.append(f"{error}")
        else:
            # The word "sha256" itself was hit, so there is nothing to compare the file with; the rest is as it was.
            np.testing.assert_array_equal(rows["w"], expected["w"], err_msg=str(position))
    assert len(refused) > 300
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in refused)


def test_read_json_a_damaged_small_file_is_named(tmp_path):
    path = tmp_path / "duplicates.json"
    path.write_text('{"model": "a", "dupl')
    with pytest.raises(UserError, match=r"duplicates\.json: not a complete JSON file"):
        files.read_json(path)


def test_atomic_write_without_room_leaves_nothing(tmp_path):
    script = (
        "import resource, sys\nfrom toposcale.io import files\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with files.atomic_write(sys.argv[1]) as path:\n    path.write_bytes(bytes(2000))\n"
    )
    path = tmp_path / "table.parquet"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        f"UserError: {path}: not written (file too large); make room and run again"
    )
    assert list(tmp_path.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


def test_locked_a_lock_file_is_held_by_one_process(tmp_path):
    lock = tmp_path / "folder" / "lock"
    with locked(lock), lock.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_locked_warns_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.warns(UserWarning, match=r"/lock: not locked \(no locks available\)"), locked(tmp_path / "lock"):
        pass


def without_locks(file, operation):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


# Writers of one file.

WRITER = """
import sys
from toposcale.io.files import atomic_write, write_text
for number in range(300):
    with atomic_write(sys.argv[1]) as path, path.open("w") as file:
        for line in range(50):
            file.write(sys.argv[2] * 99 + "\\n")
            file.flush()
"""


def test_atomic_write_of_two_processes_gives_whole_files(tmp_path):
    path = tmp_path / "inspections.json"
    whole = [f"{letter * 99}\n" * 50 for letter in "ab"]
    path.write_text(whole[0])
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, letter], stderr=subprocess.PIPE, text=True)
        for letter in "ab"
    ]
    while any(writer.poll() is None for writer in writers):
        assert path.read_text() in whole
    assert [writer.communicate()[1] for writer in writers] == ["", ""]
    assert path.read_text() in whole
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_write_inside_another_of_the_same_path(tmp_path):
    path = tmp_path / "table"
    with files.atomic_write(path) as outer:
        outer.write_text("outer")
        with files.atomic_write(path) as inner:
            inner.write_text("inner")
        assert path.read_text() == "inner"
        assert outer.read_text() == "outer"
    assert path.read_text() == "outer"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_write_gives_the_permissions_of_a_new_file(tmp_path):
    files.write_text(tmp_path / "ours", "")
    (tmp_path / "plain").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


# Files that state or hold more than they should.


def test_read_plain_or_gzip_refuses_a_compression_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_SMALL_BYTES", 1 << 16)
    bomb, table = tmp_path / "bomb.csv.gz", tmp_path / "table.csv.gz"
    bomb.write_bytes(gzip.compress(b"step,loss\n" + b"1,2\n" * (1 << 20)))
    table.write_bytes(gzip.compress(b"step,loss\n1,2\n"))
    with pytest.raises(UserError, match=r"bomb\.csv\.gz: decompressed, it is more than 100 times as large"):
        table_files.read_any(bomb)
    assert len(table_files.read_any(table)[0]) == 1


def test_read_any_csv_of_too_many_columns_refused_before_parsed(tmp_path):
    path, most = tmp_path / "wide.csv", table_files.MAX_COLUMNS
    for count in (most, most + 1):
        names = ["step", "loss", *map("c{}".format, range(count - 2))]
        path.write_text(f"{','.join(names)}\n{','.join('1' for _ in names)}\n")
        if count == most:
            assert table_files.read_any(path)[0].num_columns == most
    with pytest.raises(
        UserError, match=r"wide\.csv: 10,001 columns, of which 10,000 are read; keep the step and the loss"
    ):
        table_files.read_any(path)


def test_checkpoint_refuses_an_archive_of_compressed_weights(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * (1 << 22))
    with pytest.raises(UserError, match=r"pytorch_model\.bin: its 4194304 bytes are compressed"):
        list(Checkpoint(path).matrices())


def test_checkpoint_tensor_of_too_many_axes_is_no_matrix(tmp_path):
    header = {name: {"dtype": "F32", "data_offsets": [at, at + 4]} for name, at in (("deep", 0), ("w", 4))}
    header["deep"]["shape"], header["w"]["shape"] = [1] * 102, [1, 1]
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + np.ones(2, "<f4").tobytes())
    assert [name for name, _ in Checkpoint(path).matrices()] == ["w"]


def test_describe_leaves_out_tensors_of_too_many_axes(tmp_path):
    random = torch.Generator().manual_seed(0)
    deep, weight = torch.ones([3, 4, *[1] * 70]), torch.randn(4, 3, generator=random)
    torch.save({"deep": deep, "w": weight}, tmp_path / "a.bin")
    safetensors.torch.save_file({"deep": deep, "w": weight}, tmp_path / "a.safetensors")
    safetensors.torch.save_file({"deep": deep.bfloat16(), "w": weight}, tmp_path / "b.safetensors")
    for source in (
        tmp_path / "a.bin",
        tmp_path / "a.safetensors",
        tmp_path / "b.safetensors",
        {"deep": deep, "w": weight},
    ):
        table = toposcale.describe(source)
        assert list(table.index) == ["w", "all"]
        assert table.attrs["notes"] == ["not measured: 1 tensor, 50%, 72-D: deep", "no ESD exponent α (too small): w"]


def test_checkpoint_weights_are_nested_without_end_are_found(tmp_path):
    content = {"w": torch.ones(2, 3)}
    for _ in range(300):
        content = {"model": content, "step": 1}
    torch.save(content, tmp_path / "a.pt")
    assert [name for name, _ in Checkpoint(tmp_path / "a.pt").matrices()] == ["w"]
    torch.save({"model": {"model": {"optimizer": {}}}}, tmp_path / "b.pt")
    with pytest.raises(UserError, match="it holds optimizer, none of which is called"):
        list(Checkpoint(tmp_path / "b.pt").matrices())


@pytest.mark.parametrize("name", ["trainer_state.json", "log.jsonl", "log.json"])
def test_read_a_log_that_is_nested_too_deeply_is_named(tmp_path, name):
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / name).write_text(f'{{"step": 1, "loss": 2, "global_step": 1, "log_history": {deep}}}\n')
    with pytest.raises(UserError, match=name):
        loss_curves.read(tmp_path / name)


def test_write_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    path = tmp_path / "part.parquet"
    tables.write(tables.from_rows(schemas.TABLES["metrics"], []), path)

    def fail(*_, **__):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", fail)
    with pytest.raises(MemoryError):
        tables.read_checked(path)
