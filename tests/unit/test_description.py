"""`describe` and `compare`: the numbers of the workflow, from files, folders, modules and arrays, in one call."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

import toposcale
from paths import ROOT
from toposcale import checkpoints, homology
from toposcale.features import diagram_distances, weights
from toposcale.features.feature import SUMMARY
from toposcale.io import tables
from toposcale.io.errors import UserError
from toposcale.monitor import TopologyMonitor
from toposcale.monitor.folder import Folder


def arrays(seed=0, scale=1.0):
    generator = np.random.default_rng(seed)
    shapes = {"wte.weight": (12, 6), "h.0.attn.weight": (18, 6), "h.0.mlp.weight": (6, 9), "norm.weight": (6,)}
    return {name: (scale * generator.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


MATRIX_SHAPES = {"h.0.attn.weight": (18, 6), "h.0.mlp.weight": (6, 9), "wte.weight": (12, 6)}


@pytest.fixture
def file(tmp_path):
    save_file(arrays(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


class Tied(nn.Module):
    """A table of tokens that is the output matrix too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed_tokens = nn.Embedding(12, 6)
        self.lm_head = nn.Linear(6, 12, bias=False)
        self.lm_head.weight = self.embed_tokens.weight


def by_key(table):
    return table.set_index(["layer", "feature"])["value"].to_dict()


def run(*arguments, **options):
    command = [sys.executable, "-m", "toposcale", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)


def test_features_of_the_numbers_are_those_of_the_workflow(file):
    table = toposcale.features_of(file, max_points=10)
    features, _ = weights.compute_features(
        checkpoints.Checkpoint(file).matrices(), weights.WeightSettings(max_points=10)
    )
    assert list(table.columns) == ["layer", "feature", "value"]
    assert by_key(table) == {(layer, name): value for layer in features for name, value in features[layer].items()}
    assert set(table["layer"]) == {"wte.weight", "h.0.attn.weight", "h.0.mlp.weight", "all"}


def test_features_of_file_folder_arrays_and_module_say_the_same(file):
    expected = by_key(toposcale.features_of(file))
    assert by_key(toposcale.features_of(str(file.parent))) == expected
    assert by_key(toposcale.features_of(arrays())) == expected
    assert (
        by_key(toposcale.features_of({name: torch.from_numpy(value) for name, value in arrays().items()})) == expected
    )
    module = nn.Linear(6, 18, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(arrays()["h.0.attn.weight"]))
    assert by_key(toposcale.features_of(module)) == by_key(
        toposcale.features_of({"weight": arrays()["h.0.attn.weight"]})
    )


@pytest.mark.parametrize(("value", "kind"), [("abc", "text"), ([["a"], ["b"]], "text"), (None, "objects")])
def test_describe_text_is_no_array(value, kind):
    with pytest.raises(UserError, match=f"w: not an array of numbers, but of {kind}"):
        toposcale.describe({"w": value})


def test_features_of_arrays_of_another_byte_order_weights_too():
    matrix = np.random.default_rng(0).normal(size=(24, 20)).astype(np.float32)
    swapped = toposcale.features_of({"w": matrix.astype(">f4" if sys.byteorder == "little" else "<f4")})
    pd.testing.assert_frame_equal(swapped, toposcale.features_of({"w": matrix}))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_features_of_module_in_half_precision_measured_as_file(tmp_path, kind):
    module = nn.Linear(6, 18, bias=False).to(kind)
    values = module.weight.detach().float().numpy()
    dtype = ml_dtypes.bfloat16 if kind == torch.bfloat16 else np.float16
    save_file({"weight": values.astype(dtype)}, tmp_path / "half.safetensors")
    assert by_key(toposcale.features_of(module)) == by_key(toposcale.features_of(tmp_path / "half.safetensors"))


def test_features_of_the_monitor_of_the_module_says_the_same(tmp_path):
    model = Tied()
    with TopologyMonitor(tmp_path, "model", every=1, tensorboard=False) as monitor:
        monitor.step(model)
    rows = tables.read_checked(Folder(tmp_path, "model").file("features/weights", 1)).to_pandas()
    assert by_key(rows) == by_key(toposcale.features_of(model))


def test_features_of_tied_weights_count_once(tmp_path):
    model = Tied()
    once = {"embed_tokens.weight": model.embed_tokens.weight.detach().numpy()}
    expected = by_key(toposcale.features_of(once))
    assert by_key(toposcale.features_of(model)) == expected
    assert by_key(toposcale.features_of(model.state_dict())) == expected
    torch.save(model.state_dict(), tmp_path / "tied.bin")
    copies = {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}
    save_file(copies, tmp_path / "copied.safetensors")
    for path in (tmp_path / "tied.bin", tmp_path / "copied.safetensors"):
        assert by_key(toposcale.features_of(path)) == expected
        assert checkpoints.Checkpoint(path).count.total == 12 * 6
    copies["lm_head.weight"][-1, -1] += 1
    save_file(copies, tmp_path / "untied.safetensors")
    assert set(toposcale.features_of(tmp_path / "untied.safetensors")["layer"]) == {*copies, "all"}
    assert checkpoints.Checkpoint(tmp_path / "untied.safetensors").count.total == 2 * 12 * 6


def test_features_of_layers_are_chosen_by_name(file):
    assert set(toposcale.features_of(file, layers="*attn*")["layer"]) == {"h.0.attn.weight", "all"}
    assert set(toposcale.features_of(file, layers=["*attn*", "wte*"])["layer"]) == {
        "wte.weight",
        "h.0.attn.weight",
        "all",
    }
    with pytest.raises(
        UserError, match=r"no weight matrix is called \*attention\*; its layers are .*h\.0\.attn\.weight"
    ):
        toposcale.features_of(file, layers="*attention*")


def test_changes_of_has_every_feature_and_diagram_distance(file, tmp_path):
    save_file(arrays(1), tmp_path / "later.safetensors")
    table = toposcale.changes_of(file, tmp_path / "later.safetensors")
    assert list(table.columns) == ["layer", "feature", "before", "after", "change"]
    rows = table.set_index(["layer", "feature"])
    before, after = (toposcale.features_of(path) for path in (file, tmp_path / "later.safetensors"))
    for side, described in (("before", before), ("after", after)):
        assert rows[side].dropna().to_dict() == by_key(described)
    both = rows.dropna()
    assert (both["change"] == both["after"] - both["before"]).all()
    expected = diagram_distances.distances(
        *(
            tables.diagram_rows(
                weights.compute_features(values.items(), weights.WeightSettings())[1],
                model="model",
                step=0,
                source="weights",
            )
            for values in ({n: a for n, a in arrays(seed).items() if a.ndim == 2} for seed in (0, 1))
        )
    )
    moved = rows[rows["before"].isna()].drop(index=["relative_change", "cosine_similarity"], level="feature")
    moved = moved["change"].to_dict()
    assert moved == {(layer, name): value for layer in expected for name, value in expected[layer].items()}
    assert moved["all", "h0_wasserstein_1"] > 0


def test_features_of_a_layer_ignore_which_are_chosen(file):
    whole = toposcale.features_of(file)
    for layer in arrays():
        if layer != "norm.weight":
            some = toposcale.features_of(file, layers=layer)
            assert by_key(some[some["layer"] == layer]) == by_key(whole[whole["layer"] == layer])


def test_changes_of_a_checkpoint_has_not_moved_from_itself(file):
    table = toposcale.changes_of(file, file).set_index("feature")
    assert (table.loc["cosine_similarity", "change"] == 1).all()
    assert (table.drop(index="cosine_similarity")["change"] == 0).all()


def test_changes_of_a_layer_of_one_checkpoint_only_has_no_change(file):
    larger = {**arrays(), "new.weight": np.eye(4, dtype=np.float32)}
    rows = toposcale.changes_of(file, larger).set_index(["layer", "feature"])
    assert np.isnan(rows.loc[("new.weight", "h0_count"), "change"])
    assert rows.loc[("new.weight", "h0_count"), "after"] == 3
    assert rows.loc[("all", "h0_wasserstein_1"), "change"] == 0
    with pytest.raises(UserError, match=r"no layer in common; the first has h\.0\.attn\.weight.*the second other"):
        toposcale.changes_of(file, {"other": np.eye(4)})


def test_compare_feature_one_checkpoint_too_small_for_no_change():
    small, large = {"w": np.ones((1, 1))}, {"w": np.arange(20.0).reshape(5, 4)}
    for before, after in ((small, large), (large, small)):
        table = toposcale.compare(before, after)
        assert np.isnan(table.loc["w", "h0_total_scaled"])
        assert np.isfinite(table.loc["w", "frobenius_norm"])


def test_features_of_weights_that_are_not_finite_are_told(file):
    broken = arrays()
    broken["wte.weight"][0, 0] = np.nan
    with pytest.warns(RuntimeWarning, match=r"wte\.weight holds NaN"):
        table = toposcale.features_of(broken)
    values = by_key(table)
    assert np.isnan(values["wte.weight", "h0_total"])
    assert np.isnan(values["all", "h0_total"])
    assert np.isfinite(values["h.0.attn.weight", "h0_total"])


def test_features_of_what_cannot_be_described():
    with pytest.raises(TypeError, match="not a list"):
        toposcale.features_of([1, 2])
    with pytest.raises(UserError, match=r"no weight matrix in it; not measured: 1 tensor, 100%, 1-D: bias"):
        toposcale.describe({"bias": np.ones(3)})


def test_features_of_matrix_is_named_as_whole_model_is_refused():
    named = {"all": np.eye(3), "other": np.eye(4)}
    with pytest.raises(UserError, match="a matrix is named 'all', which stands for the whole model in the tables"):
        toposcale.features_of(named)
    assert set(toposcale.features_of(named, layers="other")["layer"]) == {"other", "all"}


def test_features_of_progress_is_handed_every_matrix(file):
    seen = []

    def progress(matrices, total):
        assert total == 3
        for name, matrix in matrices:
            seen.append(name)
            yield name, matrix

    toposcale.features_of(file, progress=progress)
    assert sorted(seen) == ["h.0.attn.weight", "h.0.mlp.weight", "wte.weight"]


def test_describe_imports_neither_torch_nor_snakemake(file):
    program = f"""
import sys, numpy, toposcale
toposcale.features_of({str(file)!r})
toposcale.changes_of({str(file)!r}, {{"wte.weight": numpy.eye(3)}})
print(sorted({{"torch", "snakemake", "transformers", "matplotlib"}} & set(sys.modules)))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_features_of_command_prints_table_and_csv_to_last_digit(file, tmp_path):
    said = run("describe", file, "--all", "--csv", "--layers", "*attn*")
    assert said.returncode == 0, said.stderr
    (tmp_path / "out.csv").write_text(said.stdout)
    read = pd.read_csv(tmp_path / "out.csv")
    assert by_key(read) == by_key(toposcale.features_of(file, layers="*attn*"))
    assert said.stderr == (
        "toposcale: not measured: 1 tensor, 2.5%, 1-D: norm.weight\n"
        "toposcale: not measured: 2 tensors, 52.5%, not chosen\n"
        "toposcale: no ESD exponent α (too small): h.0.attn.weight\n"
    )
    table = run("describe", file, "--all").stdout.splitlines()
    assert table[0].split() == ["layer", "feature", "value"]
    assert [line.split()[0] for line in table[1:4]] == ["h.0.attn.weight"] * 3  # each row can be found by grep
    moved = run("compare", file, file, "--all").stdout
    assert moved.split()[:5] == ["layer", "feature", "before", "after", "change"]
    assert "h0_bottleneck" in moved


def test_describe_first_screen_is_row_matrix_and_a_line_a_column(file):
    lines = run("describe", file).stdout.splitlines()
    assert lines[0].split() == ["layer", "shape", "params", *SUMMARY.values()]
    assert [line.split()[0] for line in lines[1:5]] == ["h.0.attn.weight", "h.0.mlp.weight", "wte.weight", "all"]
    assert [line.split()[0] for line in lines[6:12]] == list(SUMMARY.values())
    assert lines[12:] == [
        "not measured: 1 tensor, 2.5%, 1-D: norm.weight",
        "no ESD exponent α (too small): h.0.attn.weight, h.0.mlp.weight, wte.weight",
    ]
    assert max(map(len, lines)) <= 80
    assert "neural_persistence" not in run("describe", file, "--features", "norms").stdout
    moved = run("compare", file, file).stdout.splitlines()
    assert moved[0].split() == ["layer", "shape", "change", *SUMMARY.values()]
    assert moved[1].split()[-7:] == ["0.0%", "+0.0%", "-", *["+0.0%"] * 4]


def test_describe_a_change_from_0_has_no_percentage(tmp_path):
    """The second matrix of a fresh adapter is 0."""
    for name, scale in (("before.safetensors", 0.0), ("after.safetensors", 1.0)):
        values = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
        save_file({"a.weight": values, "b.weight": scale * values, "c.weight": (3 + scale) * values}, tmp_path / name)
    moved = run(
        "compare", tmp_path / "before.safetensors", tmp_path / "after.safetensors", "--features", "norms"
    ).stdout
    rows = {line.split()[0]: line for line in moved.splitlines() if line}
    assert "a.weight" not in rows  # it is frozen
    assert rows["c.weight"].split()[2:] == ["33.3%", "+33.3%"]
    assert rows["b.weight"].split()[2:] == ["from", "0", "from", "0"]
    assert rows["norm"].endswith("b.weight from 0")
    assert "inf" not in moved
    back = run("compare", tmp_path / "after.safetensors", tmp_path / "before.safetensors", "--features", "norms").stdout
    assert "-100.0%" in back


def test_describe_matrix_has_one_row_with_features_of_long_form(file):
    table = toposcale.describe(file)
    assert list(table.columns) == ["shape", "parameters", *SUMMARY, "odd"]
    assert table["shape"].to_dict() == {name: (n, m) for name, (n, m) in MATRIX_SHAPES.items()} | {"all": None}
    assert table["parameters"]["all"] == sum(n * m for n, m in MATRIX_SHAPES.values())
    long = by_key(toposcale.features_of(file))
    shown = {(layer, name): table.at[layer, name] for layer in table.index for name in SUMMARY}
    assert shown.pop(("all", "powerlaw_alpha")) is not None
    assert {key: value for key, value in shown.items() if key[1] != "powerlaw_alpha"}.items() <= long.items()
    pd.concat([table, toposcale.describe(arrays(1))])  # attrs that are compared must not raise
    moved = toposcale.compare(file, arrays(1))
    after = toposcale.describe(arrays(1))
    expected = after[list(SUMMARY)] / table[list(SUMMARY)] - 1
    assert np.allclose(moved[list(SUMMARY)].where(np.isfinite(expected), 0), expected.where(np.isfinite(expected), 0))
    assert (toposcale.compare(file, file)[list(SUMMARY)].fillna(0) == 0).all(axis=None)


def test_describe_only_what_is_shown_is_computed(file, monkeypatch):
    monkeypatch.setattr("toposcale.features.spectra.nuclear_norm", lambda weight: pytest.fail("not asked for"))
    toposcale.describe(file)
    with pytest.raises(UserError, match="features: norm is none of topology, norms, spectra"):
        toposcale.describe(file, features=("norm",))
    with pytest.raises(UserError, match="features: norm is none of topology, norms, spectra"):
        toposcale.describe(file, features="norm")
    assert toposcale.describe(file, features="norms").equals(toposcale.describe(file, features=("norms",)))


def test_describe_an_odd_layer_is_marked_with_its_reason():
    rng = np.random.default_rng(0)
    named = {f"h.{i}.mlp.weight": rng.standard_normal((20, 10)) * (9 if i == 10 else 1) for i in range(12)}
    table = toposcale.describe(named)
    assert list(table.index) == [*(f"h.{i}.mlp.weight" for i in range(12)), "all"]  # 2 before 10
    assert list(table.index[table["odd"] != ""]) == ["h.10.mlp.weight"]
    assert table["odd"]["h.10.mlp.weight"].startswith("frobenius_norm 1")


TENSORS = {
    "experts.down_proj": (4, 16, 8),
    "experts.gate_up_proj": (4, 8, 32),  # inputs as rows: its projection back tells so
    "moe.input_linear.weight": (3, 4, 5),
    "blocks.w": (2, 3, 4),
    "conv.weight": (8, 4, 3),
    "patch.weight": (6, 3, 2, 2),
    "depthwise.weight": (6, 1, 4),
    "pos_embed": (1, 5, 6),
    "cls_token": (1, 1, 6),
    "norm": (6,),
    "experts.gate_up_proj_bias": (4, 32),  # a vector for each expert
}
MATRICES = {
    **{f"experts.down_proj.{i}": (8, 16) for i in range(4)},
    **{f"experts.gate_up_proj.{i}": (32, 8) for i in range(4)},
    **{f"moe.input_linear.weight.{i}": (4, 5) for i in range(3)},
    **{f"blocks.w.{i}": (3, 4) for i in range(2)},
    **{"conv.weight": (8, 12), "patch.weight": (6, 12), "depthwise.weight": (6, 4), "pos_embed": (5, 6)},
}


def test_describe_stacked_experts_and_kernels_as_matrices(tmp_path):
    """In the file, the module and the monitor; what is none is counted."""
    rng = np.random.default_rng(0)
    named = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in TENSORS.items()}
    save_file(named | {"ids": np.ones((2, 2), np.int64)}, tmp_path / "moe.safetensors")
    read = dict(checkpoints.Checkpoint(tmp_path / "moe.safetensors").matrices())
    assert {name: values.shape for name, values in read.items()} == MATRICES
    assert (read["experts.gate_up_proj.3"] == named["experts.gate_up_proj"][3].T).all()
    assert (read["conv.weight"] == named["conv.weight"].reshape(8, 12)).all()
    sizes = checkpoints.Checkpoint(tmp_path / "moe.safetensors").sizes
    assert (sizes.n_matrices, sizes.largest_matrix) == (len(MATRICES), 256)
    table = toposcale.describe(tmp_path / "moe.safetensors")
    assert table["shape"].drop("all").to_dict() == MATRICES
    assert table.attrs["notes"] == [
        "not measured: 3 tensors, 7.05%, 1-D: cls_token, experts.gate_up_proj_bias, norm",
        "not measured: 1 tensor, 0.201%, integers: ids",
        "no ESD exponent α (too small): blocks.w.0, blocks.w.1, conv.weight and 14 more",
    ]
    model = nn.Module()
    for name in ("blocks.w", "conv.weight"):
        model.register_parameter(name.replace(".", "_"), nn.Parameter(torch.from_numpy(named[name])))
    with TopologyMonitor(tmp_path, "model", every=1, tensorboard=False) as monitor:
        monitor.step(model)
    rows = tables.read_checked(Folder(tmp_path, "model").file("features/weights", 1)).to_pandas()
    assert by_key(rows) == by_key(toposcale.features_of(model))
    assert {"blocks_w.0", "blocks_w.1", "conv_weight"} < set(rows["layer"])


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict", "module", "params"])
@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module.", "module._orig_mod."])
def test_features_of_weights_in_checkpoint_of_training_loop_read(tmp_path, key, prefix):
    named = {f"{prefix}{name}": torch.from_numpy(value) for name, value in arrays().items()}
    saved = {"step": 3, "best": torch.tensor(2.0), "optimizer": {"state": {}, "param_groups": []}, key: named}
    torch.save(saved, tmp_path / "ckpt.pt")
    assert by_key(toposcale.features_of(tmp_path / "ckpt.pt")) == by_key(toposcale.features_of(arrays()))
    assert by_key(toposcale.features_of(saved)) == by_key(toposcale.features_of(arrays()))


def test_describe_options_and_numbers_beside_weights_not_matter(tmp_path):
    named = {name: torch.from_numpy(value) for name, value in arrays().items()}
    beside = {"args": argparse.Namespace(rate=1e-3), "best": np.float64(2.5)}
    torch.save(beside | {"out": pathlib.Path("x"), "model": named | {"step": 3}}, tmp_path / "ckpt.pt")
    assert set(toposcale.describe(tmp_path / "ckpt.pt", features=("norms",)).index) == {*MATRIX_SHAPES, "all"}


def test_describe_names_what_a_file_without_weights_holds(tmp_path):
    torch.save({"step": 3, "ema": {"decay": 0.9}}, tmp_path / "ckpt.pt")
    with pytest.raises(
        UserError, match=r"it holds step, ema, none of which is called state_dict or .*; save the weights"
    ):
        toposcale.describe(tmp_path / "ckpt.pt")


def low_rank(rank, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    named = {}
    for layer in range(2):
        prefix = f"base_model.model.h.{layer}.attn.c_attn.lora_"
        named |= {
            f"{prefix}A.weight": rng.standard_normal((rank, 30)),
            f"{prefix}B.weight": scale * rng.standard_normal((40, rank)),
        }
    return {name: values.astype(np.float32) for name, values in named.items()}


@pytest.mark.parametrize("rank", [1, 4, 20])
def test_describe_adapter_has_the_products_of_its_factors(tmp_path, rank):
    named = low_rank(rank)
    save_file(named, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "gpt2", "r": rank}))
    table = toposcale.describe(tmp_path)
    assert table.attrs["notes"][0].startswith(
        "an adapter of gpt2: lora_BA is its scale, which no adapter_config.json states"
    )
    long, squared_norms = by_key(toposcale.features_of(tmp_path)), []
    for layer in range(2):
        product = f"base_model.model.h.{layer}.attn.c_attn.lora_BA"
        first, second = (named[product[:-2] + f"{factor}.weight"].astype(np.float64) for factor in "AB")
        values = np.linalg.svd(second @ first, compute_uv=False)[:rank]
        assert table.loc[product, "shape"] == (40, 30)
        assert long[product, "frobenius_norm"] == pytest.approx(np.linalg.norm(values))
        assert long[product, "nuclear_norm"] == pytest.approx(values.sum())
        assert long[product, "stable_rank"] == pytest.approx((values**2).sum() / values[0] ** 2)
        assert ((product, "powerlaw_alpha") in long) == (rank >= 16)
        assert (product, "neural_persistence") not in long
        squared_norms.append(float((values**2).sum()))
    # The whole model is what the adapter adds: a random start of the first factors is not in it.
    assert long["all", "frobenius_norm"] == pytest.approx(np.sqrt(sum(squared_norms)))
    assert ("all", "neural_persistence") not in long
    assert table.loc["all", "parameters"] == sum(values.size for values in named.values())
    assert len(table) == 7


@pytest.mark.parametrize(
    ("config", "scale", "said"),
    [
        ({"lora_alpha": 16, "r": 4}, 4, "lora_BA is alpha / r times the product"),
        ({"lora_alpha": 16, "r": 4, "use_rslora": True}, 8, r"lora_BA is alpha / sqrt\(r\), since it is rsLoRA, times"),
        ({"lora_alpha": 16, "r": 4, "alpha_pattern": {"attn.c_attn": 8}}, 2, "alpha / r times"),
        ({"lora_alpha": 16, "r": 4, "alpha_pattern": {r"h\.\d+\.mlp": 8}}, 4, "alpha / r times"),
        ({"lora_alpha": 16, "r": 64, "rank_pattern": {"c_attn": 4}}, 4, "alpha / r times"),
        ({"lora_alpha": 16, "r": 4, "use_dora": True}, 4, "DoRA: a magnitude then rescales each row"),
        ({}, 1, "lora_BA is its scale, which no adapter_config.json states and which is left out, times"),
    ],
)
def test_describe_scales_the_product_of_an_adapter(tmp_path, config, scale, said):
    named, product = low_rank(4), "base_model.model.h.0.attn.c_attn.lora_BA"
    save_file(named, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    table = toposcale.describe(tmp_path)
    plain = toposcale.describe(named)
    for column, factor in (("frobenius_norm", scale), ("stable_rank", 1)):
        assert table.loc[product, column] == pytest.approx(factor * plain.loc[product, column])
    assert table.loc["all", "frobenius_norm"] == pytest.approx(scale * plain.loc["all", "frobenius_norm"])
    assert re.search(said, " ".join(table.attrs["notes"]))


def test_features_of_a_fresh_adapter_are_0_of_a_broken_one_nan():
    product = "base_model.model.h.0.attn.c_attn.lora_BA"
    fresh = by_key(toposcale.features_of(low_rank(4, scale=0.0), features=("norms", "spectra")))
    assert {name: value for (layer, name), value in fresh.items() if layer == product} == {
        "frobenius_norm": 0.0,
        "nuclear_norm": 0.0,
    }
    broken = low_rank(4)
    broken[product[:-2] + "A.weight"][0, 0] = np.nan
    with pytest.warns(RuntimeWarning, match="holds NaN"):
        long = by_key(toposcale.features_of(broken, features=("norms", "spectra")))
    assert np.isnan(long[product, "frobenius_norm"])
    assert np.isnan(long["all", "frobenius_norm"])


def test_features_of_an_adapter_whose_second_factors_come_first():
    named = low_rank(4)
    backwards = dict(reversed(named.items()))
    product = "base_model.model.h.0.attn.c_attn.lora_BA"
    expected, features = (by_key(toposcale.features_of(weights, features="norms")) for weights in (named, backwards))
    assert features[product, "frobenius_norm"] == expected[product, "frobenius_norm"]
    assert features["all", "frobenius_norm"] == pytest.approx(expected["all", "frobenius_norm"])


def a_fine_tuning(step):
    rng = np.random.default_rng(0)
    fixed = {"base.weight": rng.standard_normal((300, 40)), "frozen.weight": rng.standard_normal((6, 4))}
    fixed["base.weight"][77, 3] += step == 30  # one entry, only at the last step
    return {**fixed, "head.weight": (1 + step) * rng.standard_normal((5, 4)), "norm.bias": np.ones(5)}


def written(folder, step):
    save_file(a_fine_tuning(step), folder / f"step{step}.safetensors")
    return folder / f"step{step}.safetensors"


def test_features_of_leaves_out_what_no_checkpoint_changes(tmp_path):
    for step in (10, 20, 30):
        written(tmp_path, step)
    table = toposcale.features_of(tmp_path, features="norms")
    assert set(table["layer"]) == {"base.weight", "head.weight", "all"}
    assert any("the same at every checkpoint: frozen.weight, norm.bias" in note for note in table.attrs["notes"])
    norms = table[table["feature"] == "frobenius_norm"].set_index(["step", "layer"])["value"]
    assert norms[20, "all"] == pytest.approx(np.hypot(norms[20, "base.weight"], norms[20, "head.weight"]))


@pytest.mark.parametrize("in_memory", [True, False])
def test_compare_what_two_checkpoints_share_named_and_left_out(tmp_path, in_memory):
    first, second, last = (a_fine_tuning(step) if in_memory else written(tmp_path, step) for step in (10, 20, 30))
    table = toposcale.compare(first, second, features="norms")
    assert list(table.index) == ["head.weight", "all"]
    assert table.loc["all", "frobenius_norm"] == pytest.approx(table.loc["head.weight", "frobenius_norm"])
    assert any("the same at every checkpoint" in note for note in table.attrs["notes"])
    assert "base.weight" in toposcale.compare(second, last, features="norms").index
    # With itself a checkpoint shares everything, and nothing is left out.
    assert len(toposcale.compare(first, first, features="norms")) == 4


def test_features_of_leaves_out_a_damaged_checkpoint(tmp_path):
    paths = [written(tmp_path, step) for step in (10, 20, 30)]
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    table = toposcale.features_of(tmp_path, features="norms")
    assert sorted(set(table["step"])) == [10, 30]
    assert str(paths[1]) in table.attrs["notes"][-1]
    for path in paths:
        path.write_bytes(b"")
    with pytest.raises(UserError, match="no checkpoint can be used"):
        toposcale.features_of(tmp_path)


def test_features_of_leaves_out_another_architecture(tmp_path):
    for step in (10, 20, 30):
        written(tmp_path, step)
    other = written(tmp_path, 40)
    save_file({"head.weight": np.eye(7, dtype=np.float32)}, other)
    table = toposcale.features_of(tmp_path, features="norms")
    assert sorted(set(table["step"])) == [10, 20, 30]
    assert table.attrs["notes"][-1].startswith(
        f"left out: {other}: its tensors have other names or shapes than in most"
    )
    save_file({"head.weight": np.eye(7, dtype=np.float32)}, written(tmp_path, 50))
    with pytest.raises(UserError, match=r"are of 2 trainings \(.*\); give each a folder of its own, or, under models"):
        toposcale.features_of(tmp_path, features="norms")


def test_compare_frozen_factor_counts_where_its_product_changes():
    before = {**low_rank(4), "frozen.weight": np.ones((3, 3))}
    after = {name: values * (1 + name.endswith("B.weight")) for name, values in before.items()}
    table = toposcale.compare(before, after, features="norms")
    assert "frozen.weight" not in table.index
    assert table.loc["base_model.model.h.0.attn.c_attn.lora_BA", "frobenius_norm"] == pytest.approx(1)
    assert table.loc["all", "frobenius_norm"] == pytest.approx(1)


def test_features_of_a_factor_alone_counts_as_it_is():
    named = low_rank(4)
    alone = {name: values for name, values in named.items() if not name.endswith("h.1.attn.c_attn.lora_B.weight")}
    long = by_key(toposcale.features_of(alone))
    norms = long["base_model.model.h.0.attn.c_attn.lora_BA", "frobenius_norm"], np.linalg.norm(list(alone.values())[2])
    assert long["all", "frobenius_norm"] == pytest.approx(np.hypot(*norms))


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:a8eda1\nsize 327657928\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.safetensors", POINTER, "a pointer of Git LFS, not the file itself; fetch it with: git lfs pull"),
        ("pytorch_model.bin", POINTER, "a pointer of Git LFS"),
        ("weights.npz", b"PK", r"arrays of NumPy; from Python: toposcale\.describe"),
        ("weights.gguf", b"GGUF", r"weights of llama\.cpp"),
    ],
)
def test_describe_what_is_not_read_is_named(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}: {reason}"):
        toposcale.describe(tmp_path / name)


def test_describe_another_pointer_beside_weights_does_not_matter(file):
    (file.parent / "tf_model.h5").write_bytes(POINTER)
    assert len(toposcale.describe(file.parent, features=("norms",)))


def test_describe_remedy_for_repositories_and_several_paths(file):
    for name in ("EleutherAI/pythia-70m", "gpt2"):
        with pytest.raises(UserError, match=f"hf download {name} --local-dir FOLDER, then name FOLDER"):
            toposcale.describe(name)
    done = run("describe", file, file)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "compare two; the workflow measures a whole training (kind: folder under models)" in done.stderr


@pytest.mark.parametrize("damage", ["missing", "cut", "text", "empty folder", "folder without its shard"])
def test_describe_a_missing_or_damaged_file_is_one_line(file, tmp_path, damage):
    path = tmp_path / "broken.safetensors"
    match damage:
        case "cut":
            path.write_bytes(file.read_bytes()[:-10])
        case "text":
            path = tmp_path / "notes.txt"
            path.write_text("the weights are elsewhere\n" * 20)
        case "empty folder":
            path.mkdir()
        case "folder without its shard":
            path.mkdir()
            index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
            (path / "model.safetensors.index.json").write_text(json.dumps(index))
            save_file(arrays(), path / "model-00001-of-00002.safetensors")
    done = run("describe", path)
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"toposcale: {path}")


def test_describe_a_wrong_command_and_a_wrong_layer_are_told(file):
    assert run("describe").returncode == 2
    assert run("paint", file).returncode == 2
    assert run("describe", "").stderr.endswith("is empty, such as a variable of the shell that is not set\n")
    done = run("describe", file, "--layers", "nothing")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_describe_the_help_names_every_command():
    said = run("--help").stdout
    assert "describe" in said
    assert "compare" in said
    for command in ("describe", "compare"):
        assert "--layers" in run(command, "--help").stdout


def test_describe_a_closed_pipe_is_no_error(file):
    command = f'"{sys.executable}" -m toposcale describe "{file}" --csv | head -n 1'
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=False)  # noqa: S602
    assert done.stdout.startswith("layer,shape,parameters,")
    assert "Error" not in done.stderr


@pytest.mark.parametrize("ending", ["", ".weight"])
def test_features_of_a_plain_mlp_has_deep_graph_persistence(ending):
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(12, 40)), rng.normal(size=(8, 12))
    table = toposcale.features_of({f"fc1{ending}": first, f"fc2{ending}": second})
    own = table[(table["layer"] == f"fc2{ending}") & (table["feature"] == "deep_graph_persistence")]
    assert own["value"].item() == homology.deep_graph_persistence(first, second)


def test_describe_no_bfloat16_array_is_taken_for_another_one():
    """Each is widened to a copy; the address of one copy may be given to the next."""
    rng = np.random.default_rng(1)
    many = {f"layer.{i}.weight": rng.normal(size=(64, 64)).astype(ml_dtypes.bfloat16) for i in range(12)}
    assert [name for name, _ in checkpoints.Checkpoint(many).matrices()] == list(many)


def test_describe_globs_that_choose_nothing_name_what_is_there():
    found = [("a.weight", np.eye(3)), ("b.weight", np.eye(3))]
    with pytest.raises(UserError, match=r"weights.layers chooses none of a.weight, b.weight"):
        weights.compute_features(found, weights.WeightSettings(include=("*attn*",)))


@pytest.mark.parametrize("call", [toposcale.describe, lambda path: toposcale.changes_of(path, path)])
def test_changes_of_a_folder_of_checkpoints_names_them(tmp_path, call):
    for step in (5, 10, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
        save_file({"w": np.eye(3)}, tmp_path / f"checkpoint-{step}" / "model.safetensors")
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError) as caught:
        call(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: a folder of checkpoints; name one of them, such as {tmp_path}/checkpoint-100 "
        "(checkpoint-5, checkpoint-10, checkpoint-100)"
    )
    # A Trainer may leave the last weights next to its checkpoints.
    save_file({"w": np.eye(3)}, tmp_path / "model.safetensors")
    assert len(call(tmp_path))


@pytest.fixture
def checkpoints_folder(tmp_path):
    """Checkpoints of three steps, each with the arrays times its step."""
    for step in (5, 10, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
        save_file(arrays(scale=step), tmp_path / f"checkpoint-{step}" / "model.safetensors")
    return tmp_path


def test_features_of_folder_of_checkpoints_features_of_each_step(checkpoints_folder):
    table = toposcale.features_of(checkpoints_folder, names=["frobenius_norm"])
    assert list(table) == ["step", "layer", "feature", "value"]
    assert table["step"].unique().tolist() == [5, 10, 100]
    for step, rows in table.groupby("step"):
        expected = toposcale.features_of(checkpoints_folder / f"checkpoint-{step}", names=["frobenius_norm"])
        pd.testing.assert_frame_equal(rows.drop(columns="step").reset_index(drop=True), expected, check_exact=True)


def test_describe_command_on_folder_row_step_and_csv_every_layer(checkpoints_folder):
    printed = run("describe", checkpoints_folder).stdout
    assert [line.split()[0] for line in printed.splitlines()[:4]] == ["step", "5", "10", "100"]
    csv = run("describe", checkpoints_folder, "--csv").stdout.splitlines()
    assert csv[0] == "step,layer,feature,value"
    assert len(csv) > 3 * len(MATRIX_SHAPES)
    plot = run("describe", checkpoints_folder, "--plot", "a.svg")
    assert plot.stderr.splitlines()[-1] == (
        f"toposcale: --plot: it draws one checkpoint, such as {checkpoints_folder}/checkpoint-100"
    )


def test_describe_json_table_and_null_where_there_is_no_number(file, tmp_path):
    told = json.loads(run("describe", file, "--json").stdout)
    assert {row["layer"] for row in told["rows"]} == {*MATRIX_SHAPES, "all"}
    assert told["rows"][0]["shape"] == [18, 6]
    save_file({"wte.weight": np.zeros((3, 3))}, tmp_path / "zero.safetensors")
    save_file({"wte.weight": np.eye(3)}, tmp_path / "one.safetensors")
    [row, _] = json.loads(run("compare", tmp_path / "zero.safetensors", tmp_path / "one.safetensors", "--json").stdout)[
        "rows"
    ]
    assert row["frobenius_norm"] is None


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "notes.txt", "weights.bin"])
def test_features_of_what_no_file_of_weights_told_without_torch(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / name).write_text('{"model_type": "gpt2"}')
    with pytest.raises(UserError, match=r"not a file of weights \(\.safetensors, \.bin, \.pt or \.ckpt\); name one"):
        toposcale.features_of(tmp_path / name)


@pytest.mark.parametrize("convert", [pd.DataFrame, memoryview, np.ndarray.tolist])
def test_describe_what_is_an_array_to_numpy_is_one(convert):
    matrix = np.arange(12.0).reshape(4, 3)
    table = toposcale.describe({"w": convert(matrix)}, features="norms")
    assert table.loc["w", "frobenius_norm"] == np.linalg.norm(matrix)


def test_describe_a_masked_array_is_refused():
    with pytest.raises(UserError, match="w: a masked array; fill in its values"):
        toposcale.describe({"w": np.ma.masked_array(np.eye(3), mask=np.eye(3))})


def test_describe_a_matrix_without_a_name_is_one_like_others():
    table = toposcale.describe({"": np.eye(3), "v": np.ones((2, 3))}, features="norms")
    assert table["frobenius_norm"].tolist() == pytest.approx([3**0.5, 6**0.5, 3])


def test_features_of_the_features_of_some_names_are_those_alone():
    table = toposcale.features_of({"w": np.eye(4)}, names=["frobenius_norm", "h0_count"])
    assert sorted(set(table["feature"])) == ["frobenius_norm", "h0_count"]
    with pytest.raises(UserError, match=r"^names: frobenius: no feature of this name is registered"):
        toposcale.features_of({"w": np.eye(4)}, names=["frobenius"])


@pytest.mark.parametrize(("name", "value"), [("max_points", 1.5), ("max_dimension", "1"), ("seed", None)])
def test_describe_a_setting_that_is_no_integer_is_named(name, value):
    with pytest.raises(TypeError, match=f"^{name} must be an integer, got {value!r}$"):
        toposcale.describe({"w": np.eye(3)}, **{name: value})
