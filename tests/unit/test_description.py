"""`describe` and `compare`: the numbers of the workflow, from files, folders, modules and arrays, in one call."""

import json
import os
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
from toposcale.checkpoints import matrices
from toposcale.features import diagram_distances, weights
from toposcale.io import tables
from toposcale.io.errors import UserError
from toposcale.monitor import TopologyMonitor
from toposcale.monitor.folder import Folder


def arrays(seed=0, scale=1.0):
    generator = np.random.default_rng(seed)
    shapes = {"wte.weight": (12, 6), "h.0.attn.weight": (18, 6), "h.0.mlp.weight": (6, 9), "norm.weight": (6,)}
    return {name: (scale * generator.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


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


def test_the_numbers_are_those_of_the_workflow(file):
    table = toposcale.features_of(file, model="mine", max_points=10)
    features, _ = weights.compute_features(
        checkpoints.iterate_matrices(file), weights.WeightSettings(max_points=10), model="mine"
    )
    assert list(table.columns) == ["layer", "feature", "value"]
    assert by_key(table) == {(layer, name): value for layer in features for name, value in features[layer].items()}
    assert set(table["layer"]) == {"wte.weight", "h.0.attn.weight", "h.0.mlp.weight", "all"}


def test_a_file_a_folder_arrays_and_a_module_say_the_same(file):
    expected = by_key(toposcale.features_of(file))
    assert by_key(toposcale.features_of(str(file.parent))) == expected
    assert by_key(toposcale.features_of(arrays())) == expected
    assert by_key(toposcale.features_of({name: torch.from_numpy(value) for name, value in arrays().items()})) == expected
    module = nn.Linear(6, 18, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(arrays()["h.0.attn.weight"]))
    assert by_key(toposcale.features_of(module)) == by_key(toposcale.features_of({"weight": arrays()["h.0.attn.weight"]}))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_module_in_half_precision_is_measured_as_its_file(tmp_path, kind):
    module = nn.Linear(6, 18, bias=False).to(kind)
    values = module.weight.detach().float().numpy()
    dtype = ml_dtypes.bfloat16 if kind == torch.bfloat16 else np.float16
    save_file({"weight": values.astype(dtype)}, tmp_path / "half.safetensors")
    assert by_key(toposcale.features_of(module)) == by_key(toposcale.features_of(tmp_path / "half.safetensors"))


def test_the_monitor_of_the_module_says_the_same(tmp_path):
    model = Tied()
    with TopologyMonitor(tmp_path, "model", every=1, tensorboard=False) as monitor:
        monitor.step(model)
    rows = tables.read_checked(Folder(tmp_path, "model").file("features/weights", 1)).to_pandas()
    assert by_key(rows) == by_key(toposcale.features_of(model))


def test_tied_weights_count_once_wherever_they_come_from(tmp_path):
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
        assert checkpoints.count_parameters(path) == 12 * 6
    copies["lm_head.weight"][-1, -1] += 1
    save_file(copies, tmp_path / "untied.safetensors")
    assert set(toposcale.features_of(tmp_path / "untied.safetensors")["layer"]) == {*copies, "all"}
    assert checkpoints.count_parameters(tmp_path / "untied.safetensors") == 2 * 12 * 6


def test_layers_are_chosen_by_name(file):
    assert set(toposcale.features_of(file, layers="*attn*")["layer"]) == {"h.0.attn.weight", "all"}
    assert set(toposcale.features_of(file, layers=["*attn*", "wte*"])["layer"]) == {"wte.weight", "h.0.attn.weight", "all"}
    with pytest.raises(
        UserError, match=r"no weight matrix is called \*attention\*; its layers are .*h\.0\.attn\.weight"
    ):
        toposcale.features_of(file, layers="*attention*")


def test_compare_tells_the_change_of_every_feature_and_the_distances_of_the_diagrams(file, tmp_path):
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
                weights.compute_features(values.items(), weights.WeightSettings(), model="model")[1],
                model="model",
                step=0,
                source="weights",
            )
            for values in ({n: a for n, a in arrays(seed).items() if a.ndim == 2} for seed in (0, 1))
        )
    )
    moved = rows[rows["before"].isna()]["change"].to_dict()
    assert moved == {(layer, name): value for layer in expected for name, value in expected[layer].items()}
    assert moved["all", "h0_wasserstein_1"] > 0


def test_the_values_of_a_layer_do_not_change_with_the_layers_that_are_chosen(file):
    whole = toposcale.features_of(file)
    for layer in arrays():
        if layer != "norm.weight":
            some = toposcale.features_of(file, layers=layer)
            assert by_key(some[some["layer"] == layer]) == by_key(whole[whole["layer"] == layer])


def test_a_checkpoint_has_not_moved_from_itself(file):
    table = toposcale.changes_of(file, file)
    assert (table["change"] == 0).all()


def test_a_layer_of_one_checkpoint_only_has_no_change(file):
    larger = {**arrays(), "new.weight": np.eye(4, dtype=np.float32)}
    rows = toposcale.changes_of(file, larger).set_index(["layer", "feature"])
    assert np.isnan(rows.loc[("new.weight", "h0_count"), "change"])
    assert rows.loc[("new.weight", "h0_count"), "after"] == 3
    assert rows.loc[("all", "h0_wasserstein_1"), "change"] == 0
    with pytest.raises(UserError, match=r"no layer in common; the first has h\.0\.attn\.weight.*the second other"):
        toposcale.changes_of(file, {"other": np.eye(4)})


def test_weights_that_are_not_finite_are_told(file):
    broken = arrays()
    broken["wte.weight"][0, 0] = np.nan
    with pytest.warns(RuntimeWarning, match=r"wte\.weight holds NaN"):
        table = toposcale.features_of(broken)
    values = by_key(table)
    assert np.isnan(values["wte.weight", "h0_total"])
    assert np.isnan(values["all", "h0_total"])
    assert np.isfinite(values["h.0.attn.weight", "h0_total"])


def test_what_cannot_be_described():
    with pytest.raises(TypeError, match="not list"):
        toposcale.features_of([1, 2])
    with pytest.raises(UserError, match="no weight matrix"):
        toposcale.features_of({"bias": np.ones(3)})


def test_a_matrix_that_is_named_as_the_whole_model_is_refused():
    named = {"all": np.eye(3), "other": np.eye(4)}
    with pytest.raises(UserError, match="a matrix is named 'all', which stands for the whole model in the tables"):
        toposcale.features_of(named)
    assert set(toposcale.features_of(named, layers="other")["layer"]) == {"other", "all"}


def test_progress_is_handed_every_matrix(file):
    seen = []

    def progress(matrices, total):
        assert total == 3
        for name, matrix in matrices:
            seen.append(name)
            yield name, matrix

    toposcale.features_of(file, progress=progress)
    assert sorted(seen) == ["h.0.attn.weight", "h.0.mlp.weight", "wte.weight"]


def test_neither_torch_nor_snakemake_is_imported_for_files_and_arrays(file):
    program = f"""
import sys, numpy, toposcale
toposcale.features_of({str(file)!r})
toposcale.changes_of({str(file)!r}, {{"wte.weight": numpy.eye(3)}})
print(sorted({{"torch", "snakemake", "transformers", "matplotlib"}} & set(sys.modules)))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_prints_a_table_and_csv_to_the_last_digit(file, tmp_path):
    said = run("describe", file, "--csv", "--layers", "*attn*")
    assert said.returncode == 0, said.stderr
    (tmp_path / "out.csv").write_text(said.stdout)
    read = pd.read_csv(tmp_path / "out.csv")
    assert by_key(read) == by_key(toposcale.features_of(file, layers="*attn*"))
    table = run("describe", file).stdout
    assert table.split()[:3] == ["layer", "feature", "value"]
    assert "h.0.attn.weight" in table
    moved = run("compare", file, file).stdout
    assert moved.split()[:5] == ["layer", "feature", "before", "after", "change"]
    assert "h0_bottleneck" in moved


@pytest.mark.parametrize("damage", ["missing", "cut", "text", "empty folder", "folder without its shard"])
def test_a_missing_or_damaged_file_is_one_line(file, tmp_path, damage):
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


def test_a_wrong_command_and_a_wrong_layer_are_told(file):
    assert run("describe").returncode == 2
    assert run("paint", file).returncode == 2
    done = run("describe", file, "--layers", "nothing")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_the_help_names_every_command():
    said = run("--help").stdout
    assert "describe" in said
    assert "compare" in said
    for command in ("describe", "compare"):
        assert "--layers" in run(command, "--help").stdout


def test_a_closed_pipe_is_no_error(file):
    command = f'"{sys.executable}" -m toposcale describe "{file}" --csv | head -n 1'
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=False)  # noqa: S602
    assert done.stdout == "layer,feature,value\n"
    assert done.stderr == ""


@pytest.mark.parametrize("ending", ["", ".weight"])
def test_a_plain_mlp_has_the_deep_graph_persistence_of_its_two_layers(ending):
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(12, 40)), rng.normal(size=(8, 12))
    table = toposcale.features_of({f"fc1{ending}": first, f"fc2{ending}": second})
    own = table[(table["layer"] == f"fc2{ending}") & (table["feature"] == "deep_graph_persistence")]
    assert own["value"].item() == homology.deep_graph_persistence(first, second)


def test_no_bfloat16_array_is_taken_for_another_one():
    """Each is widened to a copy; the address of one copy may be given to the next."""
    rng = np.random.default_rng(1)
    many = {f"layer.{i}.weight": rng.normal(size=(64, 64)).astype(ml_dtypes.bfloat16) for i in range(12)}
    assert [name for name, _ in matrices.iterate_arrays(many)] == list(many)


def test_globs_that_choose_nothing_name_what_is_there():
    found = [("a.weight", np.eye(3)), ("b.weight", np.eye(3))]
    with pytest.raises(UserError, match=r"weights.layers chooses none of a.weight, b.weight"):
        weights.compute_features(found, weights.WeightSettings(include=("*attn*",)), model="m")


@pytest.mark.parametrize("call", [toposcale.describe, lambda path: toposcale.changes_of(path, path)])
def test_a_folder_of_checkpoints_names_them(tmp_path, call):
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
    # A Trainer may leave the last weights beside its checkpoints.
    save_file({"w": np.eye(3)}, tmp_path / "model.safetensors")
    assert len(call(tmp_path))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "notes.txt", "weights.bin"])
def test_what_is_no_file_of_weights_is_told_also_without_torch(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / name).write_text('{"model_type": "gpt2"}')
    with pytest.raises(UserError, match=r"not a file of weights \(safetensors or \.bin\); name one, or its folder"):
        toposcale.features_of(tmp_path / name)
