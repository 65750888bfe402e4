"""Files that are the same bytes for the same content and that any safetensors reader opens."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import safe_open
from safetensors.numpy import load_file

from toposcale.io import not_weights, tensor_files
from toposcale.io.errors import UserError
from toposcale.io.files import remove_unfinished
from toposcale.io.tensor_files import Stored

TYPES = st.sampled_from(["uint8", "uint16", "int32", "int64", "float16", "float32", "float64"])
CONTENT = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__" and name.isprintable()),
    TYPES.flatmap(
        lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    max_size=4,
)


@settings(max_examples=60)
@given(CONTENT, st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_write_round_trip_through_the_reference_reader(tmp_path_factory, content, metadata):
    path = tmp_path_factory.mktemp("tensors") / "some" / "file.safetensors"
    tensor_files.write(path, content, metadata)
    found, stored = tensor_files.read(path)
    assert stored == metadata
    reference = load_file(path)
    assert found.keys() == reference.keys() == content.keys()
    for name, array in content.items():
        assert found[name].dtype == reference[name].dtype == array.dtype
        assert found[name].tobytes() == reference[name].tobytes() == array.tobytes()
        assert found[name].shape == array.shape
    assert [entry.name for entry in path.parent.iterdir()] == ["file.safetensors"]


def test_write_bytes_do_not_depend_on_order_things_were_given_in(tmp_path):
    content = {name: np.full(3, index, np.float32) for index, name in enumerate("abcdefgh")}
    metadata = {name: name for name in "stuvwxyz"}
    tensor_files.write(tmp_path / "one", content, metadata)
    tensor_files.write(tmp_path / "two", dict(reversed(content.items())), dict(reversed(metadata.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_write_a_transposed_array_is_stored_as_it_reads(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    tensor_files.write(tmp_path / "file", {"a": array}, {})
    with safe_open(tmp_path / "file", framework="numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("a"), array)


def test_read_damaged_and_missing_files_are_named_in_one_line(tmp_path):
    path = tmp_path / "weights.safetensors"
    with pytest.raises(UserError, match=r"weights\.safetensors: no such file"):
        tensor_files.read(path)
    tensor_files.write(path, {"a": np.zeros(100)}, {})
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", b"\xff" * 100):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"weights\.safetensors: not a complete safetensors file") as caught:
            tensor_files.read(path)
        assert "\n" not in str(caught.value)


def test_write_what_cannot_be_stored_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file"
    tensor_files.write(path, {"a": np.zeros(2)}, {})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="arrays: b is complex128"):
        tensor_files.write(path, {"a": np.ones(2), "b": np.zeros(2, complex)}, {})
    with pytest.raises(ValueError, match="metadata: step is 3"):
        tensor_files.write(path, {"a": np.ones(2)}, {"step": 3})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_remove_unfinished_removes_what_a_killed_writer_left(tmp_path):
    path = tmp_path / "weights.safetensors"
    program = (
        "import os, sys\n"
        "from toposcale.io.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as temporary:\n"
        "    temporary.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert killed.returncode == -9
    [half] = tmp_path.iterdir()
    assert half != path
    remove_unfinished([tmp_path / "safetensors", tmp_path / "other" / path.name])
    assert list(tmp_path.iterdir()) == [half]
    tensor_files.write(path, {"a": np.zeros(2)}, {})
    remove_unfinished([path])
    assert list(tmp_path.iterdir()) == [path]


def test_copies_among_compares_only_with_embeddings(monkeypatch):
    pairs = []
    monkeypatch.setattr(not_weights, "_same_values", lambda first, second: pairs.append({first, second}))
    modules = ["wte", "lm_head", "embed", "norm", *("w" for _ in range(300))]
    stored = {f"layers.{k}.{module}.weight": Stored((2, 2), "F32") for k, module in enumerate(modules)}
    assert not_weights.copies_among(stored, str) == {}
    embeddings = {"layers.0.wte.weight", "layers.2.embed.weight"}
    assert pairs == [pair for pair in pairs if pair & embeddings]
    assert len(pairs) == len(modules) - 1 + len(modules) - 2  # wte with all, embed with all but wte


def test_copies_among_many_layers_takes_no_pair(monkeypatch):
    tied = []
    monkeypatch.setattr(not_weights, "_may_be_tied", lambda *names: tied.append(names))
    stored = {f"layers.{k}.w.weight": Stored((2, 2), "F32") for k in range(500)}
    assert not_weights.copies_among(stored, str) == {}
    assert tied == []
