"""The picture of `describe` and `compare`: the values of the table, by block, with what stands out by name."""

import numpy as np
import pytest
from matplotlib.text import Text
from safetensors.numpy import save_file

import toposcale
from toposcale.__main__ import main
from toposcale.features.feature import OF_COMPARISON, SUMMARY
from toposcale.figures.matrices import draw
from toposcale.io.errors import UserError

KINDS = {"self_attn.q_proj": (18, 18), "mlp.down_proj": (18, 40)}


def blocks(count=6):
    """Matrices whose names sort otherwise than the network; one matrix of block 2 is ten times as large."""
    generator = np.random.default_rng(0)
    named = {f"model.layers.{i}.{kind}.weight": shape for i in range(count) for kind, shape in KINDS.items()}
    named |= {"lm_head.weight": (24, 18), "model.embed_tokens.weight": (24, 18)}
    matrices = {name: generator.standard_normal(shape) for name, shape in named.items()}
    matrices["model.layers.2.mlp.down_proj.weight"] *= 10
    return matrices


ORDER = [
    "model.embed_tokens.weight",
    *(f"model.layers.{i}.{kind}.weight" for i in range(6) for kind in KINDS),
    "lm_head.weight",
]


def points(axes):
    """The points of a panel by index of the matrix, without rings and lines between them."""
    marks = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_markersize() < 9]
    return {int(x): y for line in marks for x, y in zip(*line.get_data(), strict=True)}


def rings(axes):
    return {int(x) for line in axes.lines if line.get_markersize() == 9 for x in line.get_xdata()}


def test_every_value_of_the_table_is_drawn_by_block():
    table = toposcale.describe(blocks())
    panels = draw(table).axes
    assert len(panels) == len(SUMMARY)
    for axes, name in zip(panels, SUMMARY, strict=True):
        assert [points(axes)[index] for index in range(len(ORDER))] == table.loc[ORDER, name].tolist()
        assert axes.get_ylabel()


def test_matrices_without_blocks_are_in_alphabetical_order_and_the_axis_says_so():
    generator = np.random.default_rng(0)
    matrices = {name: generator.standard_normal((8, 6)) for name in ("input", "attention", "middle", "embedding")}
    axes = draw(toposcale.compare(matrices, {name: 2 * matrix for name, matrix in matrices.items()})).axes[-1]
    assert [label.get_text() for label in axes.get_xticklabels()] == sorted(matrices)
    assert axes.get_xlabel() == "matrix, in alphabetical order"
    assert "alphabetical" not in draw(toposcale.describe(blocks())).axes[-1].get_xlabel()


def test_odd_matrices_are_ringed_and_named_in_the_panel_of_their_feature():
    panels = dict(zip(SUMMARY, draw(toposcale.describe(blocks())).axes, strict=True))
    odd = ORDER.index("model.layers.2.mlp.down_proj.weight")
    assert rings(panels["frobenius_norm"]) == {odd}
    assert panels["frobenius_norm"].get_title("right") == "odd: layers.2.mlp.down_proj"
    assert rings(panels["h0_total_scaled"]) == set()
    assert panels["h0_total_scaled"].get_title("right") == ""


def test_the_largest_changes_are_named_and_what_has_no_value_is_too():
    before, after = blocks(), {name: 1.01 * matrix for name, matrix in blocks().items()}
    after["model.layers.4.self_attn.q_proj.weight"] = 3 * before["model.layers.4.self_attn.q_proj.weight"]
    after["lm_head.weight"] = 0.5 * before["lm_head.weight"]
    del after["model.layers.5.mlp.down_proj.weight"]
    moved, axes = draw(toposcale.compare(before, after)).axes[:2]
    assert moved.get_title("right").endswith("layers.4.self_attn.q_proj 200.0%, lm_head 50.0%, …")
    told = axes.get_title("right")
    assert told == (
        "without a value: layers.5.mlp.down_proj; largest: layers.4.self_attn.q_proj +200.0%, lm_head -50.0%, …"
    )
    drawn = points(axes)
    assert drawn[ORDER.index("model.layers.4.self_attn.q_proj.weight")] == pytest.approx(200)
    assert np.isnan(drawn[ORDER.index("model.layers.5.mlp.down_proj.weight")])


def test_a_checkpoint_that_did_not_change_has_no_largest_change():
    figure = draw(toposcale.compare(blocks(), blocks()))
    assert [axes.get_title("right") for axes in figure.axes] == [""] * len(OF_COMPARISON)


def test_many_matrices_have_their_blocks_numbered_where_they_begin():
    axes = draw(toposcale.describe(blocks(40), features=("norms",))).axes[-1]
    labels = {int(label.get_position()[0]): label.get_text() for label in axes.get_xticklabels()}
    assert labels == {1 + 2 * block: str(block) for block in range(0, 40, 3)}


def test_no_text_of_a_panel_overlaps_another(tmp_path):
    """Long names of many odd matrices are cut before they reach the title."""
    matrices = blocks(18)
    for index in range(4):
        matrices[f"model.layers.{3 + index}.self_attn.q_proj.weight"] *= 50
    figure = draw(toposcale.describe({f"a.long.prefix.of.a.network.{name}": value for name, value in matrices.items()}))
    figure.savefig(tmp_path / "drawn.png")
    for axes in figure.axes:
        told = [text for text in axes.findobj(Text) if text.get_text() == (axes.get_title("right") or None)]
        assert all(axes.title.get_window_extent().x1 < text.get_window_extent().x0 for text in told)


def test_another_table_is_refused(tmp_path):
    with pytest.raises(toposcale.UserError, match=r"a table of toposcale\.describe"):
        toposcale.plot_matrices(toposcale.features_of(blocks()), tmp_path / "a.svg")


@pytest.fixture
def file(tmp_path):
    save_file(blocks(), tmp_path / "model.safetensors")
    return str(tmp_path / "model.safetensors")


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_commands_write_it_beside_the_table(file, tmp_path, capsys, ending):
    one, other = (tmp_path / f"{name}.{ending}" for name in ("one", "other"))
    assert main(["describe", file]) == 0
    plain = capsys.readouterr().out
    for picture in (one, other):
        assert main(["describe", file, "--plot", str(picture)]) == 0
        assert capsys.readouterr().out == plain
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes().startswith({"svg": b"<?xml", "png": b"\x89PNG"}[ending])
    assert main(["compare", file, file, "--plot", str(one)]) == 0
    assert one.read_bytes() != other.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--plot", "a.gif"], "a.gif: the suffix"), (["--plot", "a.svg", "--all"], "leave --all out")],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_measured(options, message, capsys):
    assert main(["describe", "no-such-checkpoint", *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("change", [None, lambda table: table.reset_index(), lambda table: table.drop(columns="shape")])
def test_what_has_no_layers_or_shapes_is_refused(change):
    table = toposcale.describe({"w": np.eye(3)}, features="norms")
    with pytest.raises(UserError, match=r"a table of toposcale\.describe or toposcale\.compare is needed"):
        draw(change(table) if change else None)
