import errno
import json
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import toposcale
from toposcale import checkpoints
from toposcale.checkpoints import sources
from toposcale.io import files, tensor_files, weight_files
from toposcale.io.errors import UserError, reason_of

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((3, 4)).astype(np.float32)


def sizes(path):
    return checkpoints.Checkpoint(path).sizes


def matrices(path: Path) -> dict[str, np.ndarray]:
    return dict(checkpoints.Checkpoint(path).matrices())


def saved(path, **tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)
    return path


@pytest.mark.parametrize(
    "name",
    ["step-{:08d}.safetensors", "step{}.safetensors", "step{}/model.safetensors", "checkpoint-{}/model.safetensors"],
)
def test_folder_source_checkpoints_found_under_their_usual_names(tmp_path, name):
    for step in (0, 30, 200):
        saved(tmp_path / name.format(step), w=MATRIX)
    source = checkpoints.FolderSource(tmp_path)
    assert source.steps() == [0, 30, 200]
    np.testing.assert_array_equal(matrices(source.checkpoint(30))["w"], MATRIX)
    with pytest.raises(UserError, match="no checkpoint of step 31; the nearest are 0, 30, 200"):
        source.checkpoint(31)
    with pytest.raises(UserError, match="no checkpoint of step 7"):
        checkpoints.FolderSource(tmp_path, wanted=(0, 7)).steps()


def test_folder_source_no_folder_and_no_checkpoints(tmp_path):
    with pytest.raises(UserError, match="no such folder of checkpoints"):
        checkpoints.FolderSource(tmp_path / "none").steps()
    with pytest.raises(UserError, match="so there is no checkpoint; the folder is empty"):
        checkpoints.FolderSource(tmp_path).steps()
    for epoch in (2, 1):
        (tmp_path / f"epoch-{epoch}").mkdir()
    with pytest.raises(UserError, match="so there is no checkpoint; its names are epoch-1, epoch-2"):
        checkpoints.FolderSource(tmp_path).steps()
    with pytest.raises(UserError, match=r"no name matches step\{step\}, so there is no checkpoint"):
        checkpoints.FolderSource(tmp_path, "step{step}").steps()


@pytest.mark.parametrize(
    ("names", "pattern", "without_step"),
    [
        (["model_5.pt", "model_10.pt", "best.pt", "optimizer_5.pt", "optimizer_10.pt"], "model_{step}.pt", ["best.pt"]),
        (["v2_epoch3_000.ckpt", "v2_epoch3_100.ckpt", "epoch_init.ckpt"], "v2_epoch3_{step}.ckpt", ["epoch_init.ckpt"]),
        (
            ["epoch=1-step=40.ckpt", "epoch=2-step=80.ckpt", "last.ckpt"],
            "epoch={part1}-step={step}.ckpt",
            ["last.ckpt"],
        ),
        (["e1-2.pth", "e2-3.pth"], "e{step}-{part2}.pth", None),
        (["weights.01-0.81.pth", "weights.02-0.7.pth"], "weights.{step}-{part2}.pth", []),
        (["epoch1-loss=0.25.pth", "epoch2-loss=0.2.pth"], "epoch{step}-loss={part2}.pth", []),
        (["checkpoint-0.pth.tar", "checkpoint-10.pth.tar", "opt_10.pt"], "checkpoint-{step}.pth.tar", []),
        (["only_700.pt", "final.pt"], "only_{step}.pt", ["final.pt"]),
    ],
)
def test_folder_source_the_step_is_the_number_that_varies(tmp_path, names, pattern, without_step):
    """A number with a point is none, and of two the one behind the word step or epoch is meant."""
    for name in names:
        (tmp_path / name).touch()
    source = checkpoints.FolderSource(tmp_path)
    if without_step is None:
        with pytest.raises(UserError, match="no name of weights holds the step as its one number"):
            source.steps()
        return
    assert source.steps() == checkpoints.FolderSource(tmp_path, pattern).steps()
    assert source.without_step == without_step


def test_folder_source_of_the_only_file_without_a_number(tmp_path):
    save_file({"w": MATRIX}, tmp_path / "final.safetensors")
    with pytest.raises(
        UserError, match=r"rename them, as to final-1000\.safetensors; or .* toposcale describe .*final\.saf"
    ):
        checkpoints.FolderSource(tmp_path).steps()
    assert weight_files.weight_files(tmp_path) == [tmp_path / "final.safetensors"]
    (tmp_path / "other.safetensors").write_bytes((tmp_path / "final.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"final\.safetensors, other\.safetensors; name that file"):
        weight_files.weight_files(tmp_path)


def test_folder_source_folder_checkpoint_itself_step_of_trainer(tmp_path):
    save_file({"w": MATRIX}, tmp_path / "model.safetensors")
    with pytest.raises(
        UserError, match=r"one checkpoint, which does not hold its step; if its name does, name the folder"
    ):
        checkpoints.FolderSource(tmp_path).steps()
    (tmp_path / "trainer_state.json").write_text('{"global_step": 40, "log_history": []}')
    source = checkpoints.FolderSource(tmp_path)
    assert (source.steps(), source.checkpoint(40), source.without_step) == ([40], tmp_path, [])
    # Beside numbered checkpoints it is the copy of one of them.
    (tmp_path / "checkpoint-20").mkdir()
    save_file({"w": MATRIX}, tmp_path / "checkpoint-20/model.safetensors")
    source = checkpoints.FolderSource(tmp_path)
    assert (source.steps(), source.steps_inside) == ([20], {})
    assert source.without_step == ["model.safetensors"]


def test_folder_source_steps_inside_the_files(tmp_path):
    torch = pytest.importorskip("torch")
    dated = ("run_2024-03-01_12-00-00.pth", "run_2024-03-01_13-30-00.pth", "run_2024-03-02_15-00-00.pth")
    for step, name in zip((300, 100, 200), dated, strict=True):
        torch.save({"model": {"w": torch.ones(2, 2)}, "step": step}, tmp_path / name)
    source = checkpoints.FolderSource(tmp_path)
    assert [source.checkpoint(step).name for step in source.steps()] == [dated[1], dated[2], dated[0]]
    torch.save({"model": {"w": torch.ones(2, 2)}, "step": 300}, tmp_path / "best.pth")  # the same step twice
    with pytest.raises(UserError, match="nor do the files"):
        checkpoints.FolderSource(tmp_path).steps()


@pytest.mark.parametrize(
    ("name", "count"),
    [("epoch={}-val_loss=3.2.ckpt", "global_step"), ("checkpoint_epoch_{}.pt", "step"), ("net_{}.pt", "iteration")],
)
def test_folder_source_reads_the_step_where_names_count_epochs(tmp_path, name, count):
    torch = pytest.importorskip("torch")
    for epoch in range(3):
        state = {"model": {"w": torch.ones(2, 2) * epoch}, "epoch": epoch, count: 1000 * (epoch + 1)}
        torch.save(state, tmp_path / name.format(epoch))
    source = checkpoints.FolderSource(tmp_path)
    assert (source.steps(), source.counts_epochs) == ([1000, 2000, 3000], False)
    assert source.checkpoint(2000).name == name.format(1)
    assert list(toposcale.features_of(tmp_path, features="norms")["step"].unique()) == [1000, 2000, 3000]
    (tmp_path / name.format(2)).write_bytes(b"PK")  # a damaged one is left out, and the others keep their steps
    source = checkpoints.FolderSource(tmp_path)
    assert (source.steps(), source.without_step) == ([1000, 2000], [name.format(2)])


def test_folder_source_says_that_steps_are_epochs(tmp_path):
    torch = pytest.importorskip("torch")
    for epoch in (1, 2):
        torch.save({"w": torch.ones(2, 2) * epoch}, tmp_path / f"epoch-{epoch}.pt")
    assert checkpoints.FolderSource(tmp_path).counts_epochs
    table = toposcale.features_of(tmp_path, features="norms")
    assert (list(table["step"].unique()), table.attrs["notes"][0][:20]) == ([1, 2], "the steps are epochs")


def test_folder_source_trusts_a_name_that_says_step(tmp_path):
    torch = pytest.importorskip("torch")
    for step in (100, 200):  # micro-steps within
        torch.save({"w": torch.ones(2, 2) * step, "epoch": step, "step": 8 * step}, tmp_path / f"step_{step}.pt")
    assert checkpoints.FolderSource(tmp_path).steps() == [100, 200]


def cached_repository(hub, *revisions):
    """Write a repository into a cache of the Hub, and return its folder."""
    repository = hub / "models--me--gpt2"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revisions[0])
    for number, revision in enumerate(revisions):
        blob = saved(repository / "blobs" / f"{number:040d}", w=MATRIX)
        (repository / "snapshots" / revision).mkdir(parents=True)
        (repository / "snapshots" / revision / "model.safetensors").symlink_to(blob)
    return repository


def test_describe_hub_cache_has_snapshots_and_no_steps(tmp_path):
    repository = cached_repository(tmp_path / "hub", "abc123")
    blob = repository / "blobs" / f"{0:040d}"  # safetensors by its content
    for path in (repository.parent, repository, repository / "snapshots", repository / "snapshots" / "abc123", blob):
        table = toposcale.describe(path, features="norms")
        assert list(table.index) == ["w", "all"]
        assert "step" not in toposcale.features_of(path, features="norms")
    for path in (repository.parent, repository, repository / "snapshots"):
        with pytest.raises(UserError, match=r"a cache of the Hub, whose snapshots are named by revision .*/abc123, or"):
            checkpoints.FolderSource(path).steps()


def test_describe_hub_cache_of_two_revisions_is_asked_for(tmp_path):
    repository = cached_repository(tmp_path, "abc123", "4d5e")
    with pytest.raises(UserError, match=r"snapshots of 2 revisions; name one of them, such as .*snapshots/abc123$"):
        toposcale.describe(tmp_path)
    assert "w" in toposcale.describe(repository / "snapshots" / "4d5e", features="norms").index


OTHER_FORMATS = {
    "model.ckpt-100.index model.ckpt-100.data-00000-of-00001": r"load_checkpoint\('.*/model\.ckpt-100'\)",
    "100/default/_METADATA 100/default/manifest.ocdbt": r"Orbax; .*restore\('/.*/100/default'\)",
    "checkpoint_3/.zarray": "Zarr",
    "iter_1/.metadata iter_1/__0_0.distcp iter_1/common.pt": "dcp_to_torch .*iter_1 FILE",
}


@pytest.mark.parametrize("names", OTHER_FORMATS)
def test_weight_files_names_other_formats_and_what_reads_them(tmp_path, names):
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"PK")
    for read in (toposcale.describe, lambda folder: checkpoints.FolderSource(folder).usable_steps()):
        with pytest.raises(UserError, match=OTHER_FORMATS[names]):
            read(tmp_path)


def test_describe_weight_files_names_tensorflow_by_its_files(tmp_path):
    for name in ("net.index", "net.data-00000-of-00001"):
        (tmp_path / name).touch()
        for path in (tmp_path / name, tmp_path / "net"):
            with pytest.raises(UserError, match=r"variables of TensorFlow; .*load_checkpoint\('.*/net'\)"):
                toposcale.describe(path)


def test_folder_source_weights_in_part_of_a_checkpoint_are_found(tmp_path):
    for step in (500, 1000):
        (tmp_path / f"checkpoint-{step}" / "unet").mkdir(parents=True)
        save_file({"w": MATRIX}, tmp_path / f"checkpoint-{step}/unet/diffusion_pytorch_model.safetensors")
    source = checkpoints.FolderSource(tmp_path)
    assert source.steps() == [500, 1000]
    assert checkpoints.Checkpoint(source.checkpoint(500)).shapes == {"w": list(MATRIX.shape)}
    # Two runs side by side are not a series.
    for run in ("lr3", "lr4"):
        (tmp_path / "runs" / run / "checkpoint-500").mkdir(parents=True)
        save_file({"w": MATRIX}, tmp_path / "runs" / run / "checkpoint-500" / "model.safetensors")
    with pytest.raises(UserError, match="holds 2 runs"):
        checkpoints.FolderSource(tmp_path / "runs").steps()


def test_checkpoint_further_weights_in_a_file_are_said(tmp_path):
    torch = pytest.importorskip("torch")
    weights = {"w": torch.ones(3, 2)}
    optimizer = {"state": {0: {"exp_avg": torch.ones(3, 2)}}, "param_groups": []}
    torch.save({"model": weights, "ema": weights, "optimizer": optimizer, "step": 3}, tmp_path / "a.pt")
    assert checkpoints.Checkpoint(tmp_path / "a.pt").left_out() == ["not read: further weights in the file, under ema"]
    torch.save({"model": weights, "optimizer": optimizer}, tmp_path / "a.pt")
    assert checkpoints.Checkpoint(tmp_path / "a.pt").left_out() == []


@pytest.mark.parametrize("name", ["seed_{}", "run{}", "fold-{}", "version_{}"])
def test_folder_source_numbers_of_trainings_are_no_steps(tmp_path, name):
    for number in (1, 2):
        (tmp_path / name.format(number)).mkdir()
        save_file({"w": MATRIX}, tmp_path / name.format(number) / "model.safetensors")
    with pytest.raises(UserError, match="no name of weights holds the step as its one number"):
        checkpoints.FolderSource(tmp_path).steps()


def test_folder_source_a_number_that_may_be_a_size_is_asked_for(tmp_path):
    saved(tmp_path / "moe-2k.safetensors", w=MATRIX)
    with pytest.raises(
        UserError, match=r"if the number is a step, state pattern: 'moe-{step}k\.safetensors'; or measure"
    ):
        checkpoints.FolderSource(tmp_path).steps()
    assert checkpoints.FolderSource(tmp_path, "moe-{step}k.safetensors").steps() == [2000]


def test_folder_source_of_two_patterns_asks_for_one(tmp_path):
    for name in ("a1.pt", "a2.pt", "b1.pt", "b2.pt"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"match pattern: 'a{step}\.pt' and pattern: 'b{step}\.pt' equally"):
        checkpoints.FolderSource(tmp_path).steps()
    assert checkpoints.FolderSource(tmp_path, "b{step}.pt").steps() == [1, 2]


def test_folder_source_checkpoints_lie_one_folder_deeper(tmp_path):
    for step in (1, 2):
        saved(tmp_path / "one" / f"step-{step}.safetensors", w=MATRIX)
    (tmp_path / "logs").mkdir()
    source = checkpoints.FolderSource(tmp_path)
    assert source.steps() == [1, 2]
    assert source.checkpoint(2) == tmp_path / "one" / "step-2.safetensors"
    saved(tmp_path / "two" / "step-7.safetensors", w=MATRIX)
    with pytest.raises(UserError, match=r"holds 2 runs; make each an entry of models: \{one: \{kind: folder, path: "):
        checkpoints.FolderSource(tmp_path).steps()


def test_runs_in_a_folder_do_not_follow_a_link_to_what_is_above_it(tmp_path):
    save_file({"w": np.eye(3, dtype=np.float32)}, (tmp_path / "step1.safetensors"))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "link").symlink_to(tmp_path)
    assert sources.runs_in(tmp_path / "checkpoints") == []


def test_folder_source_gives_a_reason_for_missing_checkpoints(tmp_path):
    for step in (10, 20, 30):
        saved(tmp_path / f"step{step}.safetensors", w=MATRIX)
    half = saved(tmp_path / "step40.safetensors", w=MATRIX)
    half.write_bytes(half.read_bytes()[:-5])
    saved(tmp_path / "step50.safetensors", w=MATRIX[:2])
    saved(tmp_path / "step60.safetensors", other=MATRIX)
    steps, missing = checkpoints.FolderSource(tmp_path).usable_steps()
    assert steps == (10, 20, 30)
    assert sorted(missing) == [40, 50, 60]
    assert all(str(tmp_path / f"step{step}.safetensors") in reason for step, reason in missing.items())


def test_folder_source_exception_is_a_gap_of_one_checkpoint(tmp_path, monkeypatch):
    for step in (1, 2):
        saved(tmp_path / f"step{step}.safetensors", w=MATRIX)

    def failing(error):
        def opened(path):
            if path.stem == "step2":
                raise error
            return checkpoints.Checkpoint(path)

        return opened

    for error in (RuntimeError("odd"), PermissionError(13, "denied"), KeyError("name")):
        monkeypatch.setattr(sources, "Checkpoint", failing(error))
        steps, missing = checkpoints.FolderSource(tmp_path).usable_steps()
        assert steps == (1,)
        assert missing[2].startswith(type(error).__name__)
    for error in (MemoryError(), KeyboardInterrupt(), OSError(errno.ENOSPC, "full")):
        monkeypatch.setattr(sources, "Checkpoint", failing(error))
        with pytest.raises(type(error)):
            checkpoints.FolderSource(tmp_path).usable_steps()


def test_folder_source_lists_trainings_of_other_shapes(tmp_path):
    """A longer training of another architecture took the place of part of a shorter one."""
    for step, tensor in ((10, MATRIX), (20, MATRIX[:2]), (30, MATRIX), (40, MATRIX[:2]), (60, MATRIX[:2])):
        saved(tmp_path / f"step{step}.safetensors", w=tensor)
    with pytest.raises(UserError, match=r"of 2 trainings .*: steps: \[20, 40, 60\] or steps: \[10, 30\]$"):
        checkpoints.FolderSource(tmp_path).usable_steps()
    assert checkpoints.FolderSource(tmp_path, wanted=(10, 30)).usable_steps() == ((10, 30), {})


def test_folder_source_refuses_no_usable_checkpoint(tmp_path):
    (tmp_path / "step10.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="no checkpoint can be used"):
        checkpoints.FolderSource(tmp_path).usable_steps()


def test_folder_source_the_last_whole_state_of_a_trainer_counts(tmp_path):
    source = checkpoints.FolderSource(tmp_path)
    whole = json.dumps({"log_history": [], "global_step": 1})
    for step, state in ((10, whole), (20, whole), (30, whole[:9])):
        saved(tmp_path / f"checkpoint-{step}" / "model.safetensors", w=MATRIX)
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    state, unread = source.last_trainer_state()
    assert state == str(tmp_path / "checkpoint-20" / "trainer_state.json")
    assert list(unread) == [30]
    assert unread[30].startswith(f"{tmp_path / 'checkpoint-30' / 'trainer_state.json'}: not the state of a Trainer (")
    assert checkpoints.FolderSource(tmp_path, wanted=(30,)).last_trainer_state() == (None, unread)
    assert checkpoints.FolderSource(tmp_path, wanted=(10, 20)).last_trainer_state() == (state, {})


def states(folder, **logs):
    """Checkpoints with the Trainer's state of each: the losses that it logged, and its last step."""
    for name, (losses, last) in logs.items():
        saved(folder / f"checkpoint-{name[1:]}" / "model.safetensors", w=MATRIX)
        log = [{"loss": loss, "step": 10 * number} for number, loss in enumerate(losses, start=1)]
        state = {"log_history": log, "global_step": int(name[1:]), "max_steps": last}
        (folder / f"checkpoint-{name[1:]}" / "trainer_state.json").write_text(json.dumps(state))
    return checkpoints.FolderSource(folder)


def test_folder_source_refuses_two_trainings_by_name(tmp_path):
    source = states(tmp_path, c10=([5.0], 30), c20=([5.1, 4.0], 30), c30=([5.1, 4.0, 3.0], 30))
    with pytest.raises(UserError, match=r"of 2 trainings .*: steps: \[10\] or steps: \[20, 30\]$") as caught:
        source.check_one_training()
    assert "\n" not in str(caught.value)
    checkpoints.FolderSource(tmp_path, wanted=(20, 30)).check_one_training()


def test_folder_source_of_a_training_between_another(tmp_path):
    source = states(tmp_path, c10=([5.0], 30), c20=([5.1, 4.0], 30), c30=([5.0, 4.0, 3.0], 30))
    with pytest.raises(UserError, match=r": steps: \[10, 30\] or steps: \[20\]$"):
        source.check_one_training()


def test_folder_source_of_two_trainings_without_logs(tmp_path):
    with pytest.raises(UserError, match=r": steps: \[10\] or steps: \[20\]$"):
        states(tmp_path, c10=([], 30), c20=([4.0], 40)).check_one_training()


def test_folder_source_takes_a_resumed_training_as_one(tmp_path):
    losses = [5.0, float("nan"), 4.0, 3.0]
    source = states(tmp_path, c10=([], 30), c20=(losses[:2], 30), c30=(losses[:3], 30), c40=(losses, 60))
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_text("{")  # one that is cut says nothing
    source.check_one_training()


def test_missing_parts_what_checkpoint_lacks_to_read_text_told(tmp_path):
    file = saved(tmp_path / "step1.safetensors", w=MATRIX)
    assert "config.json" in checkpoints.missing_parts(file)
    folder = saved(tmp_path / "checkpoint-1" / "model.safetensors", w=MATRIX).parent
    assert "config.json" in checkpoints.missing_parts(folder)
    (folder / "config.json").write_text("{}")
    assert "tokenizer" in checkpoints.missing_parts(folder)
    (folder / "tokenizer.json").write_text("{}")
    assert checkpoints.missing_parts(folder) == ""


# Matrices.


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_checkpoint_every_type_keeps_its_values(tmp_path, kind):
    stored = MATRIX.astype(kind)
    save_file({"w": stored}, tmp_path / "model.safetensors")
    found = matrices(tmp_path)["w"]
    assert found.dtype == (np.float32 if kind is ml_dtypes.bfloat16 else kind)
    np.testing.assert_array_equal(found.astype(np.float64), stored.astype(np.float64))


FLOAT8 = {
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


@pytest.mark.parametrize("kind", FLOAT8)
def test_checkpoint_float8_keeps_its_values(tmp_path, torch, kind):
    """Beside other tensors, so that each is read from its own place in the file."""
    from safetensors.torch import save_file as save_torch_file

    stored = torch.from_numpy(MATRIX).to(getattr(torch, kind))
    tensors = {"a": torch.ones(3, 5), "lm_head.weight": stored, "wte.weight": stored.clone(), "z": torch.ones(2, 2)}
    save_torch_file(tensors, tmp_path / "model.safetensors")
    read = matrices(tmp_path)
    assert read.keys() == {"a", "wte.weight", "z"}  # the head is a copy of the table of tokens
    np.testing.assert_array_equal(read["wte.weight"], stored.float().numpy())
    np.testing.assert_array_equal(read["wte.weight"], MATRIX.astype(FLOAT8[kind]).astype(np.float32))
    np.testing.assert_array_equal(read["z"], np.ones((2, 2)))


def test_checkpoint_header_of_bfloat16_tensors_parsed_once_file(tmp_path, monkeypatch):
    """Once a tensor takes time in the square of their number: 12 s for 2,000 of them."""
    tensors = {f"layers.{layer}.weight": np.full((2, 3), layer, ml_dtypes.bfloat16) for layer in range(20)}
    save_file(tensors, tmp_path / "model.safetensors")
    headers = []

    def parse(text):
        if b"data_offsets" in (text if isinstance(text, bytes) else text.encode()):
            headers.append(text)
        return files.parse_json(text)

    monkeypatch.setattr(tensor_files, "parse_json", parse)
    read = matrices(tmp_path)
    assert all((read[name] == float(stored[0, 0])).all() for name, stored in tensors.items())
    assert len(headers) == 1


def test_checkpoint_scales_in_eight_bits_are_refused_by_name(tmp_path, torch):
    from safetensors.torch import save_file as save_torch_file

    scales = torch.ones(2, 2).to(torch.float8_e8m0fnu)
    save_torch_file({"w": torch.ones(2, 2), "scales": scales}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors: scales is of type F8_E8M0, which is not supported"):
        matrices(tmp_path)


def test_checkpoint_matrix_without_an_entry_is_left_out_and_said(tmp_path):
    save_file({"w": MATRIX, "empty": np.ones((0, 96), np.float32)}, tmp_path / "model.safetensors")
    assert matrices(tmp_path).keys() == {"w"}
    [sentence] = checkpoints.Checkpoint(tmp_path).left_out()
    assert sentence == "not measured: 1 tensor, 0%, empty: empty"


@pytest.mark.parametrize("kind", [np.int8, np.bool_])
def test_checkpoint_file_without_weights_named_with_what_is_in(tmp_path, kind):
    save_file({"q": np.ones((2, 3), kind), "norm": np.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=rf"^{tmp_path}: no weight matrix .*: q \(2 x 3\): integers$"):
        matrices(tmp_path)
    save_file({"norm": np.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=rf"^{tmp_path}: no weight matrix .*: no tensor is 2-D$"):
        matrices(tmp_path)


def test_checkpoint_a_folder_with_an_adapter_is_read(tmp_path):
    save_file({"lora_A.weight": MATRIX}, tmp_path / "adapter_model.safetensors")
    assert matrices(tmp_path).keys() == {"lora_A.weight"}
    # A whole model next to it is what counts.
    save_file({"w": MATRIX}, tmp_path / "model.safetensors")
    assert matrices(tmp_path).keys() == {"w"}


def test_checkpoint_only_weight_matrices_are_given(tmp_path):
    masks = {
        "gpt_neox.layers.0.attention.bias": np.ones((4, 4), np.float32),
        "gpt_neox.layers.0.attention.masked_bias": np.ones((1, 1), np.float32),
        "h.0.attn.bias": np.ones((4, 4), np.float32),
        "layers.0.attention.rotary_emb.inv_freq": np.ones((2, 2), np.float32),
    }
    others = {"norm": np.ones(4, np.float32), "counts": np.ones((2, 2), np.int64)}
    others |= {"h.1.attn.bias": np.arange(3, dtype=np.float32)}  # of a linear layer that is called attn
    kept = {"layers.0.attention.dense.weight": MATRIX, "layers.0.attention.bias_like.weight": MATRIX}
    save_file(masks | others | kept, tmp_path / "model.safetensors")
    assert matrices(tmp_path).keys() == kept.keys()
    assert checkpoints.Checkpoint(tmp_path).count.total == 4 + 3 + 2 * MATRIX.size  # and not the integers


def save_shards(folder: Path, index: dict[str, str]) -> None:
    for name in set(index.values()):
        save_file({key: MATRIX for key, shard in index.items() if shard == name}, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


SHARDS = {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00002-of-00002.safetensors",
    "c": "model-00001-of-00002.safetensors",
}


def test_checkpoint_shards(tmp_path):
    save_shards(tmp_path, SHARDS)
    assert matrices(tmp_path).keys() == SHARDS.keys()
    assert checkpoints.Checkpoint(tmp_path).count.total == 3 * MATRIX.size


def test_checkpoint_a_tensor_that_a_shard_lacks_is_named(tmp_path):
    save_shards(tmp_path, SHARDS)
    assert checkpoints.Checkpoint(tmp_path).left_out() == []
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": SHARDS | {"d": SHARDS["a"]}}))
    assert checkpoints.Checkpoint(tmp_path).left_out() == ["missing, though the index of the shards names them: d"]


def test_checkpoint_a_missing_shard_is_named(tmp_path):
    save_shards(tmp_path, SHARDS)
    (tmp_path / SHARDS["b"]).unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors: missing"):
        matrices(tmp_path)


@pytest.mark.parametrize("name", ["../model-00001-of-00001.safetensors", "/etc/passwd", "x.pkl", 3])
def test_checkpoint_an_index_that_points_elsewhere_is_refused(tmp_path, name):
    save_shards(tmp_path, SHARDS)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UserError, match="not a shard in the same folder"):
        matrices(tmp_path)


def test_checkpoint_an_index_that_is_damaged_is_named(tmp_path):
    save_shards(tmp_path, SHARDS)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map"')
    with pytest.raises(UserError, match=r"index\.json: not an index"):
        matrices(tmp_path)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["pytorch_model.bin", "model.safetensors", "flax_model.msgpack"], ["model.safetensors"]),
        (
            ["pytorch_model.bin", "model.safetensors.index.json", "model-00001-of-00001.safetensors"],
            ["model.safetensors.index.json", "model-00001-of-00001.safetensors"],
        ),
        (["model.safetensors.index.json", "pytorch_model.bin"], ["pytorch_model.bin"]),
        (["pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"],) * 2,
        (["training_args.bin", "optimizer.pt", "model.pkl"], []),
    ],
)
def test_choose_weight_files_one_format_is_chosen(names, chosen):
    assert weight_files.choose_weight_files(names) == chosen


# Damage.


@given(st.data())
@settings(max_examples=60)
def test_checkpoint_cut_safetensors_file_named_wherever_is_cut(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    file = folder / "model.safetensors"
    save_file({"w": MATRIX, "v": MATRIX}, file)
    whole = file.read_bytes()
    file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    for read in (matrices, sizes):
        with pytest.raises(UserError, match=r"model\.safetensors: not a complete safetensors file"):
            read(folder)


@pytest.mark.parametrize(
    "content", [b"", b"not a file of tensors at all", struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 2) + b"[]"]
)
def test_checkpoint_what_is_no_safetensors_file_is_named(tmp_path, content):
    file = tmp_path / "step-00000001.safetensors"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"step-00000001\.safetensors: not a complete"):
        matrices(file)


def test_checkpoint_longer_file_than_its_header_says_is_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    save_file({"w": MATRIX}, file)
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(UserError, match="not a complete safetensors file"):
        matrices(file)


def test_checkpoint_a_checkpoint_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="no such checkpoint"):
        matrices(tmp_path / "none")
    with pytest.raises(UserError, match=r"none of model\.safetensors, .*, adapter_model\.bin$"):
        matrices(tmp_path)
    (tmp_path / "consolidated.00.pth").touch()
    (tmp_path / "other.pth").touch()
    with pytest.raises(UserError, match=r"but consolidated\.00\.pth, other\.pth; name that file$"):
        matrices(tmp_path)
    (tmp_path / "__0_0.distcp").touch()
    with pytest.raises(UserError, match=r"a distributed checkpoint of PyTorch; convert it: "):
        matrices(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(UserError, match=r"without their index model\.safetensors\.index\.json; fetch it too$"):
        matrices(tmp_path)


# Files of torch.


@pytest.mark.parametrize("archive", [True, False])
def test_checkpoint_bin_files_old_and_new(tmp_path, torch, archive):
    half = torch.from_numpy(MATRIX).to(torch.bfloat16)
    state = {"w": torch.from_numpy(MATRIX), "half": half, "x.attention.bias": torch.ones(4, 4), "norm": torch.ones(4)}
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=archive)
    found = matrices(tmp_path)
    assert found.keys() == {"w", "half"}
    np.testing.assert_array_equal(found["w"], MATRIX)
    np.testing.assert_array_equal(found["half"], half.float().numpy())
    assert checkpoints.Checkpoint(tmp_path).count.total == 2 * MATRIX.size + 4


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_checkpoint_a_cut_bin_file_is_named(tmp_path, torch, share):
    file = tmp_path / "pytorch_model.bin"
    torch.save({"w": torch.ones(64, 64)}, file)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        matrices(tmp_path)


class Harmful:
    """Unpickling it would call a function."""

    def __reduce__(self):
        return (Path.touch, (Path("harm"),))


def test_checkpoint_nothing_in_a_bin_file_is_run(tmp_path, torch, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in ({"w": Harmful()}, Harmful()):
        torch.save(content, tmp_path / "pytorch_model.bin")
        with pytest.raises(UserError, match="contains Python objects other than tensors, which are not loaded"):
            matrices(tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of torch.jit
def test_checkpoint_no_message_advises_to_run_what_is_in_a_file(tmp_path, torch):
    file = tmp_path / "pytorch_model.bin"

    def saved_as_script():
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(file))

    for save in (lambda: torch.save({"w": Harmful()}, file), saved_as_script):
        save()
        with pytest.raises(Exception, match="weights_only") as advice:
            torch.load(file, weights_only=True)
        with pytest.raises(UserError, match="which are not loaded") as caught:
            matrices(tmp_path)
        for line in (str(caught.value), reason_of(advice.value)):
            assert "weights_only" not in line
            assert "Python objects other than tensors, which are not loaded" in line


UNREADABLE = {
    "sparse": (lambda torch: torch.eye(4).to_sparse(), r"x is sparse or nested \(torch\.sparse_coo\)"),
    "meta": (lambda torch: torch.ones(4, 4, device="meta"), r"x has no values \(it is on the meta device\)"),
    "expanded": (lambda torch: torch.ones(1).expand(1 << 20, 1 << 20), "x has 1048576 x 1048576 entries, more than"),
    "quantised": (
        lambda torch: torch.quantize_per_tensor(torch.ones(4, 4), 0.1, 0, torch.qint8),
        r"x is torch\.qint8, which is not supported",
    ),
}


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says that it will drop quantised tensors
def test_checkpoint_bin_file_with_an_unreadable_tensor(tmp_path, torch, kind, archive):
    make, message = UNREADABLE[kind]
    state = {"w": torch.ones(4, 4), "x": make(torch)}
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=archive)
    for read in (matrices, sizes):
        with pytest.raises(UserError, match=rf"^{tmp_path}/pytorch_model\.bin: {message}"):
            read(tmp_path)


def test_checkpoint_a_bin_file_with_a_number_for_a_name_is_named(tmp_path, torch):
    torch.save({"w": torch.ones(4, 4), 5: torch.ones(4, 4)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin: a tensor in it is named 5, which is not a text"):
        matrices(tmp_path)


def test_checkpoint_bin_file_of_conjugate_negative_parameters(tmp_path, torch):
    complex_numbers = torch.complex(torch.from_numpy(MATRIX), 2 * torch.from_numpy(MATRIX))
    state = {
        "conjugate": complex_numbers.conj(),  # complex, so not a matrix of weights
        "negative": complex_numbers.clone().conj().imag,
        "parameter": torch.nn.Parameter(torch.from_numpy(MATRIX)),
    }
    torch.save(state, tmp_path / "pytorch_model.bin")
    read = matrices(tmp_path)
    assert read.keys() == {"negative", "parameter"}
    np.testing.assert_array_equal(read["negative"], -2 * MATRIX)
    np.testing.assert_array_equal(read["parameter"], MATRIX)


def test_checkpoint_a_bin_file_of_something_else_is_refused(tmp_path, torch):
    torch.save([torch.ones(2, 2)], tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="not a dictionary of tensors"):
        matrices(tmp_path)


def test_checkpoint_safetensors_need_no_heavy_import(tmp_path):
    save_file({"w": MATRIX}, tmp_path / "model.safetensors")
    code = (
        "import sys; from toposcale import checkpoints\n"
        f"list(checkpoints.Checkpoint({str(tmp_path)!r}).matrices())\n"
        "print(sorted({'torch', 'transformers', 'huggingface_hub', 'pandas', 'sklearn'} & sys.modules.keys()))"
    )
    source = str(Path(checkpoints.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def tiny_models():
    import transformers

    sizes = {"vocab_size": 11}
    yield (
        transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, n_positions=16, **sizes))
    )
    llama = transformers.LlamaConfig(
        hidden_size=8,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
        **sizes,
    )
    yield transformers.LlamaForCausalLM(llama)


@pytest.mark.parametrize("model", list(tiny_models()), ids=["gpt2", "llama"])
def test_checkpoint_rows_of_block_outputs_in_every_architecture(tmp_path, model):
    import torch

    model.save_pretrained(tmp_path)
    found = matrices(tmp_path)
    linear = {
        name: module
        for name, module in model.named_modules()
        if type(module).__name__ in ("Conv1D", "Linear") and f"{name}.weight" in found
    }
    assert len(linear) >= 8
    for name, module in linear.items():
        matrix = found[f"{name}.weight"]
        with torch.no_grad():
            # Column i of the matrix is what the layer makes of only input i.
            inputs = torch.eye(matrix.shape[1])
            outputs = module(inputs) - module(torch.zeros_like(inputs))
        np.testing.assert_allclose(matrix.T, outputs.numpy(), atol=1e-6, err_msg=name)


@pytest.fixture
def opened(monkeypatch):
    """The files of weights that are opened, in order."""
    paths, open_file = [], tensor_files.safe_open

    def counted(path, **options):
        paths.append(Path(path).name)
        return open_file(path, **options)

    monkeypatch.setattr(tensor_files, "safe_open", counted)
    return paths


def test_checkpoint_a_file_is_opened_once_whatever_is_asked(tmp_path, opened):
    ours, theirs = tmp_path / "ours.safetensors", saved(tmp_path / "theirs.safetensors", w=MATRIX)
    tensor_files.write(ours, {"w": MATRIX}, {"step": "1"})
    for path in (ours, theirs):
        checkpoint = checkpoints.Checkpoint(path)
        assert opened[-1:] != [path.name]  # not before it is asked
        assert checkpoint.left_out(checkpoint.frozen(["none"])) == []
        assert checkpoint.sizes.n_parameters == checkpoint.count.total == MATRIX.size
        assert len(list(checkpoint.matrices())) == len(checkpoint.digests()) == 1
    assert opened == ["ours.safetensors", "theirs.safetensors"]
    saved(theirs, w=MATRIX[:2])
    assert checkpoints.Checkpoint(theirs).sizes.n_parameters == MATRIX[:2].size


def test_inspect_a_bin_file_is_read_once_whatever_is_asked(tmp_path, torch, monkeypatch):
    torch.save({"model": {"w": torch.ones(4, 4)}, "step": 7}, tmp_path / "a.pt")
    loads, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda *given, **options: loads.append(given) or load(*given, **options))
    assert checkpoints.inspect(tmp_path / "a.pt").numbers == {"step": 7}
    assert len(loads) == 1


KERNELS = {
    "params.Dense_0.kernel": ((32, 128), (128, 32)),
    "params/Conv_0/kernel": ((3, 3, 16, 64), (64, 144)),
    "params.Conv_1.kernel": ((5, 8, 24), (24, 40)),
    "attention.query.kernel": ((16, 2, 8), (16, 16)),
    "attention.out.kernel": ((2, 8, 20), (20, 16)),
    "lstm.recurrent_kernel:0": ((6, 24), (24, 6)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_checkpoint_what_is_called_a_kernel_has_its_inputs_first(tmp_path, name):
    stored, shape = KERNELS[name]
    values = np.random.default_rng(0).standard_normal(stored)
    save_file({name: values}, tmp_path / "flax.safetensors")
    [read] = matrices(tmp_path / "flax.safetensors").values()
    assert read.shape == shape
    np.testing.assert_array_equal(read, values.reshape(shape[1], shape[0]).T)
    # The outputs of all inputs are what the layer computes.
    notes = toposcale.describe(tmp_path / "flax.safetensors", features="norms").attrs["notes"]
    assert notes == [f"read as (in, out), as Flax and Keras store a kernel: {name}"]


def test_checkpoint_stacked_kernels_are_one_matrix_a_layer(tmp_path):
    values = np.random.default_rng(0).standard_normal((3, 6, 8))
    save_file({"layers.mlp.kernel": values}, tmp_path / "flax.safetensors")
    read = matrices(tmp_path / "flax.safetensors")
    assert [matrix.shape for matrix in read.values()] == [(8, 6)] * 3
    np.testing.assert_array_equal(read["layers.mlp.kernel.2"], values[2].T)


@pytest.mark.parametrize("end", ["msgpack", "h5", "keras"])
def test_checkpoint_says_how_kernels_of_flax_and_keras_are_read(tmp_path, end):
    (tmp_path / f"weights.{end}").write_bytes(b"x")
    with pytest.raises(
        UserError, match=r"a tensor called kernel is read as \(in, out\) and transposed, any other as \(out, in\)"
    ):
        matrices(tmp_path / f"weights.{end}")
