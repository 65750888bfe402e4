"""The loss landscape as a stage of the workflow: complete by itself, repeatable, and steady where weights are not."""

import numpy as np
import pandas as pd
import pytest

from toposcale.io import tensor_files
from workspace import with_landscapes

# One worker for all of them, and for what else runs Snakemake in the folder of the finished run.
pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("finished")]


def table(workspace, name):
    """The rows of the first model."""
    rows = pd.read_parquet(workspace.results / "tables" / f"{name}.parquet")
    return rows[rows["model"] == "one"]


def test_the_stage_alone_makes_its_tables_and_no_other_features(workspace):
    planned = with_landscapes(workspace).planned("landscape")
    gathered = ("surfaces", "densities", "profiles", "path_surfaces", "trajectories")
    assert [planned.pop(f"{name}_table") for name in gathered] == [1] * 5
    assert set(planned) == {"landscape", "corpus", "train", "loss_landscape", "training_path", "trajectory"}


def test_the_tables_of_the_stage_have_every_checkpoint_plane_and_layer(finished):
    surfaces = table(finished, "surfaces")
    assert surfaces.groupby(["step", "plane"]).size().to_dict() == {
        (step, plane): 25 for step in (0, 40) for plane in ("random_1", "negative_1")
    }
    features = pd.read_parquet(finished.results / "features/landscape/one/all.parquet").query("step == 40")
    whole = features[features["layer"] == "all"].set_index("feature")["value"]
    assert {"n_saddles_random_1_grid8", "n_saddles_negative_1_grid8_spread", "hessian_trace", "hessian_min"} <= set(
        whole.index
    )
    layers = features[(features["feature"] == "hessian_trace") & (features["layer"] != "all")]["value"]
    assert layers.sum() == pytest.approx(whole["hessian_trace"])
    assert set(table(finished, "profiles")["direction"]) == {"random_1", "negative_1", "from the checkpoint before"}


def test_the_middle_of_the_surface_is_the_loss_of_the_checkpoint(finished):
    """Every table that holds the last checkpoint's own loss has the same number, computed apart here."""
    import torch

    from toposcale.training import corpus, trainer
    from toposcale.training.gpt import GPTShape

    path = finished.results / "checkpoints/one/step-00000040.safetensors"
    metadata = tensor_files.read(path)[1]
    shape = GPTShape(*(int(metadata[k]) for k in ("vocab_size", "context", "d_model", "n_layers", "n_heads")))
    text = corpus.load_corpus(finished.results / "corpus/tokens.safetensors")
    windows = trainer.validation_sequences(text.validation, shape.context, 4)[::2]
    loss = trainer.validation_loss(trainer.load_weights(path, shape, torch.device("cpu")), windows)
    last = table(finished, "surfaces").query("step == 40 and x == 0 and y == 0")
    assert last["loss"].to_list() == [pytest.approx(loss, rel=1e-5)] * 2  # the centre of both planes
    profile = table(finished, "profiles").query("step == 40")
    ends = profile[profile["direction"] == "from the checkpoint before"]["level"]
    assert loss == pytest.approx(ends.min(), rel=1e-5)  # training went downhill


def test_the_path_ends_where_its_plane_is_centred(finished):
    path = table(finished, "trajectories").set_index("step")
    assert list(path.index) == list(range(0, 41, 8))
    assert path.loc[40, ["x", "y", "distance"]].to_list() == pytest.approx([0, 0, 0])
    weights = [
        np.concatenate([array.ravel() for array in tensor_files.read(file)[0].values()], dtype=np.float64)
        for file in sorted((finished.results / "checkpoints/one").glob("*.safetensors"))
    ]
    away = np.linalg.norm(weights[0] - weights[-1])
    assert np.linalg.norm(path.loc[0, ["x", "y", "distance"]]) == pytest.approx(away, rel=1e-5)
    window = table(finished, "path_surfaces")
    assert window["x"].min() < path["x"].min() < path["x"].max() < window["x"].max()


def test_sketches_are_those_of_the_steps_of_training(finished):
    sketch = tensor_files.read(finished.results / "sketches/one/all.safetensors")[0]
    assert list(sketch["step"]) == list(range(41))
    assert sketch["sketch"].shape == (41, 64)


def test_weights_that_are_not_finite_are_nan_features_and_a_warning_and_stop_nothing(finished, tmp_path):
    run = finished.copied(tmp_path / "copy")
    path = run.results / "checkpoints/one/step-00000040.safetensors"
    arrays, metadata = tensor_files.read(path)
    arrays["blocks.0.attention.qkv.weight"][0, 0] = np.nan
    tensor_files.write(path, arrays, metadata)
    assert set(table(run, "surfaces")["step"]) == {0, 40}
    allowed = ("--allowed-rules", "loss_landscape", "surfaces_table")
    run.snakemake("results/small/tables/surfaces.parquet", *allowed)
    for source in ("landscape", "gradients"):
        features = pd.read_parquet(run.results / "features" / source / "one/all.parquet").query("step == 40")["value"]
        assert features.isna().all()
    assert "NaN" in (run.results / "logs/loss_landscape/one/all.log").read_text()
    assert set(table(run, "surfaces")["step"]) == {0}


def test_landscapes_of_more_checkpoints_train_nothing_again(finished, tmp_path):
    run = finished.copied(tmp_path / "copy")
    run.config["landscape"]["every"] = 4
    planned = run.planned("landscape")
    assert planned["loss_landscape"] == 2
    assert not {"train", "trajectory"} & set(planned)
