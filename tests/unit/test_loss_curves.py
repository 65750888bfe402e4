"""Loss curves as trackers leave them: what is read under which names, and one line for what is wrong."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis.user_tables import metric_table
from toposcale.forecasting.logs import loss_curves, trainer_states
from toposcale.io.errors import UserError


def written(tmp_path, columns, name="losses.csv", separator=","):
    frame = pd.DataFrame(columns)
    path = tmp_path / name
    frame.to_parquet(path) if name.endswith(".parquet") else frame.to_csv(path, index=False, sep=separator)
    return path


def state_file(tmp_path, history, **facts):
    path = tmp_path / trainer_states.FILE_NAME
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"log_history": history, "global_step": 20, **facts}))
    return path


def metrics_of(curve, *checkpoints):
    return {(row["step"], row["metric"]): row["value"] for row in metric_table(curve, "m", checkpoints).to_pylist()}


@pytest.mark.parametrize("name", ["losses.csv", "losses.parquet"])
def test_rows_are_sorted_and_what_is_missing_is_nan(tmp_path, name):
    path = written(tmp_path, {"loss": [2.0, 3.0], "step": [10, 5], "lr": [0.1, 0.2], "mine": ["a", "b"]}, name)
    curve = loss_curves.read(path)
    log = curve.log()
    assert list(log) == ["step", "loss", "gradient_norm", "learning_rate"]
    assert log["step"].tolist() == [5, 10]
    assert log["loss"].tolist() == [3.0, 2.0]
    assert log["learning_rate"].tolist() == [0.2, 0.1]
    assert np.isnan(log["gradient_norm"].tolist()).all()
    assert metrics_of(curve) == {(5, "training_loss"): 3.0, (10, "training_loss"): 2.0}


@pytest.mark.parametrize(
    "names",
    [
        ("Step", "train/loss", "eval/loss", "train/learning_rate"),  # W&B, under the Trainer
        ("_step", "loss", "val_loss", "lr"),
        ("step", "train_loss", "val_loss", "lr-AdamW"),  # Lightning
        ("Step", "my-run - train/loss", "my-run - eval/loss", "my-run - train/learning_rate"),  # a W&B chart
        ("iteration", "Training_Loss", "Validation/Loss", "learning_rate"),
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_names_of_trackers_and_every_separator_are_read(tmp_path, names, separator):
    values = ([1, 2], [4.5, 3.5], [5.0, 4.0], [0.1, 0.2])
    curve = loss_curves.read(written(tmp_path, dict(zip(names, values, strict=True)), "export.tsv", separator))
    log = curve.log()
    assert (log["step"].tolist(), log["loss"].tolist()) == ([1, 2], [4.5, 3.5])
    assert log["learning_rate"].tolist() == [0.1, 0.2]
    assert metrics_of(curve)[1, "validation_loss"] == 5.0


def test_extremes_beside_a_chart_are_no_loss(tmp_path):
    columns = {"Step": [1], "r - loss": [2.0], "r - loss__MIN": [1.0], "r - loss__MAX": [3.0]}
    assert loss_curves.read(written(tmp_path, columns)).log()["loss"].tolist() == [2.0]


def test_a_decimal_comma_is_read(tmp_path):
    path = tmp_path / "losses.csv"
    path.write_text("step;loss\n1;4,5\n2;3,25\n")
    assert loss_curves.read(path).log()["loss"].tolist() == [4.5, 3.25]


def test_rows_of_one_step_are_joined_and_contradictions_refused(tmp_path):
    rows = {"step": [5, 5, 9], "train_loss": [2.0, None, 1.0], "val_loss": [None, 2.5, None]}
    curve = loss_curves.read(written(tmp_path, rows))
    assert curve.log()["step"].tolist() == [5, 9]
    assert metrics_of(curve)[5, "validation_loss"] == 2.5


@pytest.mark.parametrize("name", ["losses.csv", "losses.parquet", "losses.jsonl", "columns", "state"])
def test_of_a_step_that_was_logged_again_the_last_value_counts_in_every_reader(tmp_path, name):
    """A training that was resumed at step 10 logs steps 20 and 30 again."""
    columns = {"step": [10, 20, 30, 20, 30], "loss": [5.0, 4.0, 3.9, 4.1, 3.5]}
    rows = pd.DataFrame(columns).to_dict("records")
    if name == "columns":
        curve = loss_curves.of_columns(columns)
    elif name == "state":
        curve = loss_curves.read(state_file(tmp_path, rows))
    elif name == "losses.jsonl":
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
        curve = loss_curves.read(tmp_path / name)
    else:
        curve = loss_curves.read(written(tmp_path, columns, name))
    assert curve.log()["loss"].tolist() == [5.0, 4.1, 3.5]
    assert curve.notes == ("the log goes back to step 20, as after a restart: 2 rows before that were left out",)


def test_a_row_that_is_there_twice_is_no_repeated_step(tmp_path):
    assert loss_curves.of_columns({"step": [1, 2, 2], "loss": [3.0, 2.0, 2.0]}).notes == ()


@pytest.mark.parametrize("names", [("step", "val_loss"), ("iter", "lm loss validation"), ("Step", "eval/loss")])
def test_validation_losses_alone_are_a_curve(tmp_path, names):
    curve = loss_curves.read(written(tmp_path, dict(zip(names, ([1, 2], [4.5, 3.5]), strict=True))))
    assert metrics_of(curve) == {(1, "validation_loss"): 4.5, (2, "validation_loss"): 3.5}
    assert len(curve.log()["step"]) == 0


@pytest.mark.parametrize("name", ["Loss/train", "lm loss", "train/CrossEntropyLoss", "cross_entropy", "train_loss"])
def test_further_names_of_the_loss(tmp_path, name):
    columns = {"Wall time": [0.5, 0.6], "Step": [1, 2], name: [4.5, 3.5]}
    assert loss_curves.read(written(tmp_path, columns)).log()["loss"].tolist() == [4.5, 3.5]


def test_a_value_beside_a_loss_is_no_loss(tmp_path):
    columns = {"step": [1, 2], "loss": [4.5, 3.5], "value": [0.1, 0.2]}
    assert loss_curves.of_columns(columns).log()["loss"].tolist() == [4.5, 3.5]


def test_columns_may_be_named(tmp_path):
    columns = {"batch": [1, 2], "nll": [4.5, 3.5], "val_loss": [9.0, 8.0], "step": [7, 9]}
    chosen = {"loss_column": "nll", "step_column": "batch"}
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, pd.DataFrame(columns).to_dict("records"))))
    for curve in (
        loss_curves.read(written(tmp_path, columns), **chosen),
        loss_curves.read(tmp_path / "a.jsonl", **chosen),
        loss_curves.of_columns(columns, **chosen),
    ):
        assert curve.log()["step"].tolist() == [1, 2]
        assert curve.log()["loss"].tolist() == [4.5, 3.5]
        assert list(curve.metric_series()) == ["training_loss"]
    with pytest.raises(UserError, match="no column ppl for the loss; its columns are batch, nll"):
        loss_curves.of_columns(columns, loss_column="ppl")


@pytest.mark.parametrize("name", ["losses.csv", "losses.jsonl", "losses.parquet"])
def test_a_compressed_file_and_one_without_its_ending_are_read_by_their_content(tmp_path, name):
    columns = {"step": [5, 10], "loss": [3.0, 2.0]}
    path = tmp_path / name
    if name == "losses.jsonl":
        path.write_text("\n".join(map(json.dumps, pd.DataFrame(columns).to_dict("records"))))
    else:
        written(tmp_path, columns, name)
    whole = loss_curves.read(path).log()
    bare = tmp_path / "losses"
    bare.write_bytes(path.read_bytes())
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for copy in (bare, packed):
        assert loss_curves.read(copy).log()["step"].tolist() == whole["step"].tolist() == [5, 10]
        assert loss_curves.read(copy).log()["loss"].tolist() == whole["loss"].tolist() == [3.0, 2.0]


def test_a_compressed_file_that_is_cut_is_one_line(tmp_path):
    packed = gzip.compress(b"step,loss\n" + b"1,2\n" * 5000)
    (tmp_path / "a.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError, match="not readable"):
        loss_curves.read(tmp_path / "a.csv.gz")


def test_numbers_as_texts_in_json_are_numbers(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"step": "5", "loss": "3.25", "note": "a"}\n{"step": 10, "loss": "2e0"}')
    assert loss_curves.read(tmp_path / "a.jsonl").log()["loss"].tolist() == [3.25, 2.0]


def test_tokens_in_the_place_of_steps_are_named():
    with pytest.raises(UserError, match=r"are these tokens.*--tokens-per-step"):
        loss_curves.of_columns({"step": [5e8, 1e9], "loss": [3.0, 2.0]})


def test_checkpoints_are_where_the_validation_loss_is(tmp_path):
    path = written(tmp_path, {"step": [0, 1, 2, 3], "loss": [4.0, 3, 2, 1], "val_loss": [4.5, None, None, 1.5]})
    curve = loss_curves.read(path)
    assert len(curve.log()["step"]) == 4
    assert metrics_of(curve) == {
        (0, "validation_loss"): 4.5,
        (3, "validation_loss"): 1.5,
        (0, "training_loss"): 4.0,
        (3, "training_loss"): 1.0,
    }


def test_a_checkpoint_between_logged_steps_has_the_loss_that_was_logged_next(tmp_path):
    curve = loss_curves.read(written(tmp_path, {"step": [10, 20], "loss": [4.0, 3.0]}))
    metrics = metrics_of(curve, 0, 5, 10, 15, 25)
    # The mean over steps 11 to 20 is logged at 20 and holds step 15; nothing was logged of step 0 or after 20.
    assert metrics[5, "training_loss"] == 4.0
    assert metrics[15, "training_loss"] == 3.0
    assert not {(0, "training_loss"), (25, "training_loss")} & set(metrics)


def test_a_long_log_is_thinned_and_keeps_its_ends(tmp_path):
    steps = np.arange(5000)
    curve = loss_curves.read(written(tmp_path, {"step": steps, "loss": 1 / (1 + steps)}))
    kept = sorted(step for step, _ in metrics_of(curve))
    assert len(kept) == loss_curves.MAX_CHECKPOINTS
    assert (kept[0], kept[-1]) == (0, 4999)
    assert np.ptp(np.diff(kept)) <= 1


def test_losses_of_policies_and_flows_are_read(tmp_path):
    curve = loss_curves.read(written(tmp_path, {"step": [1, 2, 3], "loss": [0.5, 0.0, -2.5]}))
    assert metrics_of(curve)[3, "training_loss"] == -2.5


def test_the_state_of_a_trainer_is_read(tmp_path):
    history = [
        {"step": 10, "loss": 4.0, "grad_norm": 0.5, "learning_rate": 1e-3, "epoch": 0.1},
        {"step": 10, "eval_loss": 4.2, "eval_runtime": 3.0, "eval_samples_per_second": 9.0, "eval_accuracy": 0.3},
        {"step": 20, "loss": 3.0, "grad_norm": 0.4, "learning_rate": 5e-4},
        {"step": 20, "train_runtime": 100.0, "train_loss": 3.5, "total_flos": 1e9},
    ]
    curve = loss_curves.read(state_file(tmp_path, history))
    log = curve.log()
    assert log["loss"].tolist() == [4.0, 3.0]
    assert log["gradient_norm"].tolist() == [0.5, 0.4]
    assert log["learning_rate"].tolist() == [1e-3, 5e-4]
    assert metrics_of(curve) == {(10, "training_loss"): 4.0, (10, "validation_loss"): 4.2, (10, "accuracy"): 0.3}


@pytest.mark.parametrize(
    ("facts", "tokens"),
    [
        ({"num_input_tokens_seen": 20 * 512}, 512),
        ({"total_flos": 6 * 1000 * 20 * 512}, 512),
        ({"num_input_tokens_seen": 20 * 512, "total_flos": 1.0}, 512),
        ({"num_input_tokens_seen": 0, "total_flos": 0}, None),
        ({"total_flos": 6 * 1000 * 20 * 512.5}, None),
        ({"num_input_tokens_seen": -512}, None),
        ({"num_input_tokens_seen": [512], "total_flos": 6 * 1000 * 20 * 512}, 512),
        ({"num_input_tokens_seen": float("inf")}, None),
        ({"total_flos": "x"}, None),
        ({"total_flos": float("inf")}, None),
        ({}, None),
    ],
)
def test_tokens_a_step_are_what_the_trainer_counted_or_unknown(facts, tokens):
    assert trainer_states.tokens_per_step({"global_step": 20, **facts}, 1000) == tokens


def test_scalars_of_tensorboard_are_read(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="needs the package tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path / "events")) as writer:
        for step in (10, 20):
            writer.add_scalar("train/loss", 40.0 / step, step)
        writer.add_scalar("eval/loss", 2.5, 20)
    curve = loss_curves.read(tmp_path / "events")
    assert curve.log()["loss"].tolist() == [4.0, 2.0]
    assert metrics_of(curve)[20, "validation_loss"] == 2.5


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"step": [1], "ppl": [2.0]}, "no column for loss; its columns are step, ppl (CSV separated by commas)"),
        (
            {"step": [1]} | {f"m{i}": [i] for i in range(60)},
            "m9, m10 and 49 more (CSV separated by commas). Call it loss",
        ),
        ({"loss": [2.0], "time": [1]}, "no column for step; its columns are loss, time (CSV separated by commas)"),
        ({"step": [], "loss": []}, "no rows"),
        ({"step": [1.5], "loss": [1]}, "step holds 1.5"),
        ({"step": [-1], "loss": [1]}, "step holds -1"),
        ({"step": [1, None], "loss": [1, 2]}, "step is missing in 1 row"),
        ({"step": [1], "loss": [None], "val_loss": [None]}, "loss and val_loss holds no number"),
        ({"step": [1], "loss": ["low"]}, "column loss contains values that are not numbers"),
        (
            {"step": [1], "loss": [1], "lr": [0.1], "learning_rate": [0.1]},
            "columns learning_rate and lr both hold the learning rate",
        ),
    ],
)
def test_one_line_says_what_is_wrong(tmp_path, columns, said):
    path = written(tmp_path, columns)
    with pytest.raises(UserError) as caught:
        loss_curves.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.csv: no such file"):
        loss_curves.read(tmp_path / "gone.csv")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"log_history": 3, "global_step": 1}'])
def test_a_damaged_state_is_one_line(tmp_path, content):
    path = tmp_path / trainer_states.FILE_NAME
    path.write_text(content)
    with pytest.raises(
        UserError, match=r"not the state of a Trainer \(.*\); if it was cut short, name that of an earlier"
    ):
        loss_curves.read(path)


def test_numbers_that_a_trainer_logged_as_text_are_read(tmp_path):
    entries = [
        {"step": "10", "loss": "3.5", "learning_rate": "6e-4"},
        {"step": "20", "loss": "nan", "grad_norm": "0.5"},
        {"step": "20", "eval_loss": "3.4", "eval_model": "gpt"},
        {"step": "end", "loss": "3.4"},
    ]
    curve = loss_curves.read(state_file(tmp_path, entries))
    np.testing.assert_array_equal(curve.columns["step"], [10, 20])
    np.testing.assert_array_equal(curve.columns["loss"], [3.5, np.inf])
    np.testing.assert_array_equal(curve.columns["learning_rate"], [6e-4, np.nan])
    assert list(curve.metric_series()) == ["validation_loss"]
    assert curve.notes == ("1 of 4 entries have no step: they were left out",)


def test_an_older_state_of_the_folder_itself_is_noted(tmp_path):
    """Trainer.save_state also logs a summary, which a training that is resumed from a checkpoint lacks."""
    entries = [{"step": 10, "loss": 3.5}, {"step": 20, "loss": 3.4}]
    state_file(tmp_path, [entries[0], {"step": 10, "train_loss": 3.9, "train_runtime": 1.0}], global_step=10)
    state_file(tmp_path / "checkpoint-20", entries)
    curve = loss_curves.read(tmp_path)
    assert curve.columns["step"].tolist() == [10, 20]
    assert curve.notes == (
        "the trainer_state.json of the folder itself ends at step 10: that of checkpoint-20 is read",
    )


@pytest.mark.parametrize("last", [10, 30])
def test_states_of_two_trainings_are_refused(tmp_path, last):
    state_file(tmp_path, [{"step": 10, "loss": 3.6}], global_step=last)
    state_file(tmp_path / "checkpoint-20", [{"step": 10, "loss": 3.5}, {"step": 20, "loss": 3.4}])
    with pytest.raises(UserError, match="are of two trainings") as refused:
        loss_curves.read(tmp_path)
    named = str(refused.value).partition(f"{tmp_path}: ")[2].partition(" are ")[0].split(" and ")
    assert sorted(named) == ["checkpoint-20/trainer_state.json", "trainer_state.json"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notebook.txt", "Step\tTraining Loss\tValidation Loss\n10\tNo log\t3.6\n20\t3.500000\t3.400000\n"),
        ("a.csv", "# a run of ours\n# in 2024\n#step,Loss (nats),val_loss\n10,-,3.6\n20,3.5,3.4\n"),
        ("history.json", '{"step": [10, 20], "train_loss": [null, 3.5], "val_loss": [3.6, 3.4], "seed": 1}'),
        (
            "metrics.json",
            '{"config": {"lr": 1}, "metrics": [{"step": 10, "val_loss": 3.6}, '
            '{"step": 20, "loss": 3.5, "val_loss": 3.4}]}',
        ),
        ("full_disk.jsonl", '{"step": 10, "val_loss": 3.6}\n{"step": 20, "loss": 3.5, "val_loss": 3.4}\n\0\0\0'),
    ],
)
def test_tables_as_people_keep_them_are_read(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    curve = loss_curves.read(tmp_path / name)
    np.testing.assert_array_equal(curve.columns["step"], [10, 20])
    np.testing.assert_array_equal(curve.columns["loss"], [np.nan, 3.5])
    np.testing.assert_array_equal(curve.columns["validation_loss"], [3.6, 3.4])


def test_a_feather_file_is_read_and_other_binary_files_are_refused_with_a_remedy(tmp_path):
    frame = pd.DataFrame({"step": [10, 20], "loss": [3.5, 3.4]})
    frame.to_feather(tmp_path / "a.feather")
    assert loss_curves.read(tmp_path / "a.feather").columns["loss"].tolist() == [3.5, 3.4]
    frame.to_pickle(tmp_path / "a.pkl")
    with pytest.raises(UserError, match="nor Parquet or Feather; export it as CSV"):
        loss_curves.read(tmp_path / "a.pkl")


def test_two_runs_in_one_export_are_named(tmp_path):
    columns = {"Step": [1, 2], "run-a - train/loss": [3.0, 2.0], "run-b - train/loss": [4.0, 3.0]}
    with pytest.raises(UserError, match="columns run-a - train/loss and run-b - train/loss both hold the loss"):
        loss_curves.read(written(tmp_path, columns))


def test_counted_tokens_need_not_be_a_whole_number_a_step():
    state = {"global_step": 100, "num_input_tokens_seen": 409_633}
    assert trainer_states.tokens_per_step(state, 1000) == 4096
    assert trainer_states.tokens_per_step({"global_step": 100, "total_flos": 6 * 1000 * 409_633}, 1000) is None


ROWS = [{"step": 5, "loss": 3.0, "lr": 0.2, "note": "a"}, {"epoch": 1}, {"step": 10, "loss": 2.0, "lr": 0.1}]


def test_a_list_of_json_objects_is_read_like_its_lines(tmp_path):
    one, other = tmp_path / "losses.json", tmp_path / "losses.jsonl"
    one.write_text(json.dumps(ROWS, indent=1))
    other.write_text("\n".join(map(json.dumps, ROWS)))
    read = [loss_curves.read(path).log() for path in (one, other)]
    np.testing.assert_equal(read[0], read[1])
    assert loss_curves.read(one).log()["loss"].tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.json", b'{"step": {"0": 5}}', "neither a list of objects with a step and a loss nor the state"),
        ("a.json", b'[{"step": 5', "not JSON"),
        ("a.jsonl", b'{"step": 5, "loss": 3}\n{"step": 6, "lo\n{}', "line 2 is not JSON, one object a line"),
        ("a.jsonl", b'{"step": 5, "loss": 3}\n[1]', "line 2 is not JSON, one object a line"),
        ("a.csv", "step,loss\n1,2\n".encode("utf-16-le"), "perhaps in UTF-16LE; convert it: iconv"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\x00\x00", "a picture or a PDF; give the numbers that it shows"),
        ("a.pdf", b"%PDF-1.5\n%\xd0\xd4\n5 0 obj\nstream\n\x00", "a picture or a PDF; give the numbers that it shows"),
        ("a.log", b"<!DOCTYPE html>\n<html><body>step 5 loss 3.0</body></html>", "a web page; give the losses as CSV"),
        ("a.xlsx", b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml", "an Excel workbook or a zip archive"),
    ],
)
def test_a_file_of_another_kind_is_one_printable_line(tmp_path, name, content, line):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        loss_curves.read(tmp_path / name)
    assert line in str(error.value)
    assert str(error.value).isprintable()


DATES = np.arange("2026-01-01", "2026-01-06", dtype="M8[D]")


@pytest.mark.parametrize(
    ("name", "values", "row"),
    [
        ("step", DATES, "row 1 has '2026-01-01'"),
        ("step", DATES - DATES[0], "row 1 has '0 days'"),
        ("step", pd.Series(pd.to_timedelta(np.arange(5), unit="s").as_unit("s")), "row 1 has '0 seconds'"),
        ("loss", np.ones(5, dtype=bool), "row 1 has 'True'"),
        ("loss", np.arange(5) + 2j, r"row 1 has '2j'"),
        ("loss", pd.Series(["3", "2", "x", "1", "1"], index=range(7, 12)), "row 3 has 'x'"),
    ],
)
def test_a_column_of_dates_or_truth_values_is_no_column_of_numbers(name, values, row):
    columns = {"step": np.arange(5), "loss": np.linspace(3, 2, 5), name: values}
    with pytest.raises(UserError, match=f"column {name} contains values that are not numbers \\({row}\\)"):
        loss_curves.of_columns(columns)


def test_a_masked_entry_is_missing():
    losses = np.ma.masked_array([9.0, 4.0, 3.0], mask=[True, False, False])
    assert loss_curves.of_columns({"step": [1, 2, 3], "loss": losses}).log()["loss"].tolist() == [4.0, 3.0]


@pytest.mark.parametrize("loss", [{0: 3.0, 1: 2.0}, np.array(3.0)])
def test_a_mapping_or_a_number_is_no_column(loss):
    with pytest.raises(UserError, match="no column for loss; its columns are step"):
        loss_curves.of_columns({"step": [0, 1], "loss": loss})


def events(folder, tag, points, *, as_tensors=False):
    """Write an event file with the package that reads it."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(folder))
    for at, (step, value) in enumerate(points):
        held = {"tensor": make_tensor_proto(np.float32(value))} if as_tensors else {"simple_value": value}
        summary = Summary(value=[Summary.Value(tag=tag, **held)])
        writer.add_event(Event(wall_time=1e9 + at, step=step, summary=summary))
    writer.close()


POINTS = [(step, 3.0 + 1 / step) for step in range(100, 2001, 100)]


@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize(("training", "validation"), [("loss_train", "loss_val"), ("train", "validation")])
def test_folders_of_tensorboard_tell_training_and_validation(tmp_path, training, validation, as_tensors):
    """Also tensors of TensorFlow 2."""
    events(tmp_path / training, "loss", POINTS, as_tensors=as_tensors)
    events(tmp_path / validation, "loss", [(step, loss + 0.5) for step, loss in POINTS[::5]], as_tensors=as_tensors)
    curve = loss_curves.read(tmp_path)
    assert curve.log()["loss"] == pytest.approx([loss for _, loss in POINTS])
    values = curve.columns["validation_loss"]
    assert values[~np.isnan(values)] == pytest.approx([loss + 0.5 for _, loss in POINTS[::5]])


def test_losses_of_epochs_are_asked_about(tmp_path):
    events(tmp_path / "train", "epoch_loss", [(epoch, 5.0 - epoch / 10) for epoch in range(20)], as_tensors=True)
    with pytest.raises(UserError, match=r"epoch_loss count epochs, not steps: .* --loss-column"):
        loss_curves.read(tmp_path)
    assert loss_curves.read(tmp_path, loss_column="epoch_loss").columns["step"].max() == 19
    events(tmp_path / "train", "batch_loss", POINTS, as_tensors=True)
    assert loss_curves.read(tmp_path).names["loss"] == "batch_loss"


def test_two_files_of_a_resumed_run_are_one(tmp_path):
    for part in (POINTS[:12], POINTS[9:]):
        events(tmp_path, "train/loss", part)
    assert loss_curves.read(tmp_path).columns["step"].tolist() == [step for step, _ in POINTS]
