"""What is not a weight is told by its values: masks and tables of any name, copies, and what no checkpoint changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import toposcale
from toposcale import checkpoints
from toposcale.io.not_weights import INTEGERS, MASK, TABLE, not_a_weight

torch = pytest.importorskip("torch")


def judged(values, name="net.buffer"):
    values = np.asarray(values)
    return not_a_weight(name, values.shape, str(values.dtype), lambda count: values[:count])


def angles(length, width, first=0):
    return np.arange(first, first + length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)


def interleaved(length, width, first=0):
    table = np.empty((length, width))
    table[:, ::2], table[:, 1::2] = np.sin(angles(length, width, first)), np.cos(angles(length, width, first))
    return table


LOWER = np.tri(12)
MASKS = {
    "tril": LOWER,
    "four axes": LOWER[None, None],
    "one a head": np.broadcast_to(LOWER, (3, 12, 12)),
    "added to scores": np.where(LOWER > 0, 0.0, -np.inf),
    "a large number": np.where(LOWER > 0, 0.0, -1e9),
    "triu of other values": np.where(LOWER > 0, 0.25, -0.5).T,
    "blocks": np.kron(np.eye(3), np.ones((4, 4))),
}
TABLES = {
    "interleaved": interleaved(64, 16),
    "from position 7": interleaved(64, 16, 7),
    "halves": np.concatenate([np.sin(angles(64, 16)), np.cos(angles(64, 16))], axis=1),
    "cosines twice": np.tile(np.cos(angles(64, 16)), 2),
    "four axes": np.cos(angles(64, 16))[None, None],
    "positions first": interleaved(64, 16)[:, None],
    "columns": interleaved(64, 16).T,
    "scaled": 4 * interleaved(64, 16),
    "few positions": interleaved(8, 32),
    "frequencies": 10000.0 ** (-np.arange(0, 16, 2) / 16),
}


@pytest.mark.parametrize("name", MASKS)
def test_not_a_weight_a_mask_is_none(name):
    assert judged(MASKS[name].astype(np.float32)) == MASK


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", TABLES)
def test_not_a_weight_a_table_of_sines_is_none(name, kind):
    assert judged(TABLES[name].astype(kind)) == TABLE
    shuffled = np.random.default_rng(0).permutation(TABLES[name].ravel()).reshape(TABLES[name].shape)
    assert judged(shuffled.astype(kind)) == ""


def test_not_a_weight_integers_and_statistics_are_none():
    assert judged(np.arange(6).reshape(2, 3)) == judged(np.ones((4, 4), bool)) == INTEGERS
    assert judged(np.random.default_rng(0).random(8), "bn.running_var") != ""
    assert judged(np.ones((4, 4)), "causal_mask") == MASK


@pytest.mark.parametrize(
    "start",
    [
        *(np.zeros((6, 6)), np.ones((6, 6)), np.eye(6), np.ones(6), np.zeros(6), np.full((6, 6), np.nan)),
        *(
            np.log(np.tile(np.arange(1.0, 17.0), (32, 1))),
            np.linspace(0, 1, 12),
            np.sign(np.sin(np.arange(36.0))).reshape(6, 6),
        ),
    ],
)
def test_not_a_weight_what_weights_start_as_is_a_weight(start):
    """Zeros, ones, an identity, the states of Mamba, and a binary matrix."""
    assert judged(start) == ""


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_not_a_weight_no_random_tensor_is_taken_for_a_buffer(seed, shape):
    rng = np.random.default_rng(seed)
    assert judged(rng.standard_normal(shape)) == ""
    assert judged(np.cumsum(rng.standard_normal(shape), axis=0)) == ""  # smooth, as learned positions are


def test_not_a_weight_keeps_empty_and_small_binary_matrices(tmp_path):
    assert judged([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]) == ""
    save_file({"w": np.random.default_rng(0).random((4, 6)), "empty": np.ones((0, 96))}, tmp_path / "a.safetensors")
    assert checkpoints.Checkpoint(tmp_path / "a.safetensors").digests().keys() == {"w"}
    assert checkpoints.inspect(tmp_path / "a.safetensors").unusable == ""


class Head(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.key = torch.nn.Linear(16, 16, bias=False)
        self.register_buffer(name, torch.tril(torch.ones(32, 32)))


class Small(torch.nn.Module):
    """A GPT written by hand, whose head is tied and whose buffers are saved."""

    def __init__(self, name):
        super().__init__()
        self.tok_emb = torch.nn.Embedding(20, 16)
        self.heads = torch.nn.ModuleList(Head(name) for _ in range(3))
        self.register_buffer("rope", torch.from_numpy(interleaved(32, 16)).float())
        self.register_buffer("ids", torch.arange(32))
        self.out = torch.nn.Linear(16, 20, bias=False)
        self.out.weight = torch.nn.Parameter(self.tok_emb.weight.detach().clone())


@pytest.mark.parametrize("name", ["tril", "bias", "causal_mask", "nameless"])
@pytest.mark.parametrize("kind", ["pt", "safetensors", "memory"])
def test_describe_buffers_and_copies_are_said_and_count_nowhere(tmp_path, name, kind):
    torch.manual_seed(0)
    state = Small(name).state_dict()
    file = tmp_path / f"model.{kind}"
    if kind == "pt":
        torch.save(state, file)
    elif kind == "safetensors":
        save_file({key: value.numpy() for key, value in state.items()}, file)
    source = state if kind == "memory" else file
    table = toposcale.describe(source, features="norms")
    weights = {key: value for key, value in state.items() if key.endswith(("key.weight", "tok_emb.weight"))}
    assert set(table.index) == {*weights, "all"}
    norm = torch.cat([value.flatten() for value in weights.values()]).double().norm()
    assert table.loc["all", "frobenius_norm"] == pytest.approx(float(norm))
    notes = table.attrs["notes"]
    for part in (f"masks: heads.0.{name}", "tables of sines or frequencies: rope", "integers: ids"):
        assert sum(part in note for note in notes) == 1
    assert "not measured: 1 tensor, 0%, copies: out.weight" in notes
    assert len(notes) == 4
    if kind != "memory":
        assert checkpoints.Checkpoint(file).count.total == sum(value.numel() for value in weights.values())
        assert checkpoints.Checkpoint(file).sizes.n_matrices == len(weights)


def test_describe_layers_start_as_copies_of_each_other_all_count():
    values = np.random.default_rng(0).standard_normal((8, 4))
    layers = {f"blocks.{block}.{name}.weight": values for block in range(3) for name in ("up", "down")}
    assert set(toposcale.describe({key: value.copy() for key, value in layers.items()}).index) == {*layers, "all"}


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float16"])
def test_checkpoint_small_types_are_judged_and_tied_in_files(tmp_path, kind):
    from safetensors.torch import save_file as save_torch

    dtype = getattr(torch, kind)
    torch.manual_seed(0)
    table = torch.randn(12, 6).to(dtype)
    tensors = {"head.weight": table.clone(), "mask": torch.tril(torch.ones(8, 8)).to(dtype), "embed.weight": table}
    save_torch(tensors, tmp_path / "a.safetensors")
    torch.save(tensors, tmp_path / "a.pt")
    for file in ("a.safetensors", "a.pt"):
        assert [name for name, _ in checkpoints.Checkpoint(tmp_path / file).matrices()] == ["embed.weight"]


@pytest.mark.parametrize("end", ["pt", "safetensors"])
def test_checkpoint_what_no_checkpoint_changes_is_frozen(tmp_path, end):
    rng = np.random.default_rng(0)
    base, norm, once = rng.standard_normal((300, 40)), np.ones(8), rng.standard_normal((300, 40))
    for step in range(3):
        named = {"base.weight": base, "norm.weight": norm, "moved.weight": (step + 1) * rng.standard_normal((8, 4))}
        # One entry of a large matrix changes, only at the last step.
        named["late.weight"] = np.where((np.arange(once.size).reshape(once.shape) == 77) & (step == 2), 9.0, once)
        path = tmp_path / f"{step}.{end}"
        torch.save({key: torch.from_numpy(value) for key, value in named.items()}, path) if end == "pt" else save_file(
            named, path
        )
    digests = [set(checkpoints.Checkpoint(tmp_path / f"{step}.{end}").digests().values()) for step in range(3)]
    unchanged = set.intersection(*digests)
    last = checkpoints.Checkpoint(tmp_path / f"2.{end}")
    frozen = last.frozen(unchanged)
    assert frozen == {"base.weight", "norm.weight"}
    assert {name for name, _ in last.matrices(frozen)} == {"moved.weight", "late.weight"}
    [sentence] = last.left_out({"base.weight", "norm.weight"})
    assert sentence == "not measured: 2 tensors, 50%, the same at every checkpoint: base.weight, norm.weight"
    # Where everything is the same, nothing was trained, and nothing is left out.
    assert last.frozen(set(last.digests().values())) == set()
