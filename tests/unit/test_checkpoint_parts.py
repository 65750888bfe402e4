"""A part of a checkpoint is not a checkpoint: it is refused with the command that joins the parts."""

import pytest

import toposcale
from toposcale.checkpoints import FolderSource
from toposcale.io.errors import UserError

torch = pytest.importorskip("torch")

PARTS = {
    "ranks of a world": (["model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"], "verl.model_merger"),
    "ranks": (["model_rank0.pt", "model_rank1.pt", "model_rank2.pt"], "full_state_dict=True"),
    "tensor parallel": (["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"], "zero_to_fp32.py"),
    "zero": (["zero_pp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"], "zero_to_fp32.py"),
    "consolidated": (["consolidated.00.pth", "consolidated.01.pth"], "convert_llama_weights_to_hf"),
}


@pytest.mark.parametrize("kind", PARTS)
def test_describe_parts_are_refused_alone_and_together(tmp_path, kind):
    names, tool = PARTS[kind]
    for name in names:
        torch.save({"w": torch.randn(4, 3)}, tmp_path / name)
    for source in (tmp_path / names[0], tmp_path):
        with pytest.raises(UserError, match=rf"parts? .*not a checkpoint on their own; .*{tool}"):
            toposcale.describe(source)
    with pytest.raises(UserError, match=tool):
        FolderSource(tmp_path).steps()


def test_describe_part_by_the_total_in_its_name(tmp_path):
    for name in ("model_world_size_4_rank_3.pt", "model-00002-of-00003.bin"):
        torch.save({"w": torch.randn(4, 3)}, tmp_path / name)
        with pytest.raises(UserError, match=r"one of [34] parts of a checkpoint \(.* of [34]\)"):
            toposcale.describe(tmp_path / name)


@pytest.mark.parametrize(
    "names", [["consolidated.00.pth"], ["model_world_size_1_rank_0.pt"], ["lora_rank8.pt", "lora_rank16.pt"]]
)
def test_describe_one_part_is_whole_and_ranks_of_sweep_are_read(tmp_path, names):
    for name in names:
        torch.save({"w": torch.randn(4, 3)}, tmp_path / name)
        assert "w" in toposcale.describe(tmp_path / name, features="norms").index


def test_describe_folder_deepspeed_wrote_names_its_own_script(tmp_path):
    (tmp_path / "zero_to_fp32.py").touch()
    (tmp_path / "global_step10").mkdir()
    with pytest.raises(UserError, match=rf"join them: python {tmp_path}/zero_to_fp32\.py {tmp_path} OUT$"):
        toposcale.describe(tmp_path)


def test_describe_never_recommends_the_state_of_an_optimizer(tmp_path):
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"state": {}, "param_groups": []}, tmp_path / name)
    with pytest.raises(
        UserError, match=r"the state of a training without its weights: optimizer\.pt, rng_state\.pth, s"
    ):
        toposcale.describe(tmp_path)
    torch.save({"w": torch.randn(4, 3)}, tmp_path / "net.pt")
    table = toposcale.describe(tmp_path)
    assert table.attrs["notes"][0] == "net.pt: the only file of weights there"
    torch.save({"w": torch.randn(4, 3)}, tmp_path / "best.pt")
    with pytest.raises(UserError, match=r"but best\.pt, net\.pt; name that file$"):
        toposcale.describe(tmp_path)


@pytest.mark.parametrize(
    "ranks",
    [
        ("mp_rank_00", "mp_rank_01"),
        ("mp_rank_00_000", "mp_rank_00_001"),
        ("tp_rank_00_pp_rank_000", "tp_rank_00_pp_rank_001"),
    ],
)
def test_describe_parts_in_folders_of_ranks_are_refused(tmp_path, ranks):
    """Of two processes the file, the folder and the folder above are refused; of one process all three are read."""
    folder = tmp_path / "iter_0000100"
    for rank in ranks:
        (folder / rank).mkdir(parents=True)
        torch.save({"model": {"w": torch.ones(4, 3)}, "iteration": 100}, folder / rank / "model_optim_rng.pt")
    places = [folder, folder / ranks[0], folder / ranks[0] / "model_optim_rng.pt"]
    for place in places:
        with pytest.raises(
            UserError, match=r"parts? .*on their own; convert them to one checkpoint: .* --load-dir .*iter_0000100$"
        ):
            toposcale.describe(place)
    (folder / ranks[1]).rename(tmp_path / "elsewhere")
    (folder / ranks[0]).rename(folder / "mp_rank_00")
    for place in (folder, folder / "mp_rank_00", folder / "mp_rank_00" / "model_optim_rng.pt"):
        assert "w" in toposcale.describe(place, features="norms").index
    (tmp_path / "elsewhere").rename(folder / "mp_rank_01")
    assert FolderSource(tmp_path).steps() == [100]
    with pytest.raises(UserError, match="parts"):
        FolderSource(tmp_path).usable_steps()
