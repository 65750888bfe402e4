"""Files with a training log as programs, spreadsheets and broken copies leave them."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import safetensors.torch
import torch

from toposcale.forecasting.logs import log_files, loss_curves
from toposcale.forecasting.logs.table_files import columns_of
from toposcale.io.errors import UserError

STEPS = list(range(0, 1500, 50))
LOSSES = [round(3 + 8 / (1 + step / 100), 4) for step in STEPS]
ROWS = [{"step": step, "loss": loss} for step, loss in zip(STEPS, LOSSES, strict=True)]
LINES = "".join(f"{step},{loss}\n" for step, loss in zip(STEPS, LOSSES, strict=True))
CUT = "is half-written: it was dropped"


def comma(number):
    return str(number).replace(".", ",")


def lines(text):
    return "".join(
        text.format(step=step, loss=loss, comma=comma(loss)) for step, loss in zip(STEPS, LOSSES, strict=True)
    )


def read(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return loss_curves.read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("tabs.tsv", "step\tloss\n" + lines("{step}\t{comma}\n"), ""),
        ("later.csv", "step;loss\n0;11\n" + lines("{step};{comma}\n").split("\n", 1)[1], ""),
        ("quoted.csv", "step,loss\n" + lines('{step},"{comma}"\n'), ""),
        ("thousands.csv", "step,loss\n" + lines('"{step:,}",{loss}\n'), ""),
        ("nested.jsonl", lines('{{"step": {step}, "train": {{"loss": {loss}, "lr": 0.1}}}}\n'), ""),
        (
            "nested_twice.jsonl",
            lines('{{"step": {step}, "metrics": {{"train": {{"loss": {loss}}}, "val": null}}}}\n'),
            "",
        ),
        ("nested_last.jsonl", lines('{{"step": {step}, "loss": {{"train": {loss}}}}}\n'), ""),
        ("sep.csv", "sep=;\r\nstep;loss\r\n" + lines("{step};{comma}\r\n"), ""),
        ("mark.csv", b"\xef\xbb\xbfstep,loss\n" + LINES.encode(), ""),
        ("mark.jsonl", "\ufeff" + lines('{{"step": {step}, "loss": {loss}}}\n'), ""),
        ("lines.json", lines('{{"step": {step}, "loss": {loss}}}\n'), ""),
        (
            "current.jsonl",
            lines('{{"current_steps": {step}, "total_steps": 9000, "loss": {loss}, "eval_loss": null}}\n'),
            "",
        ),
        ("history.json", json.dumps({"log_history": [*ROWS, None, 3]}), "2 of 32 entries are not objects"),
        (
            "list.json",
            json.dumps([*ROWS, {"step": 1450, "train_loss": 4.1, "train_runtime": 9}]),
            "summary of the whole",
        ),
        (
            "windows.log",
            lines("iter {step}: loss {loss}, time 1ms\n").encode("utf-16"),
            "30 lines are those of nanoGPT",
        ),
        ("unicode.txt", ("step\tloss\r\n" + lines("{step}\t{comma}\r\n")).encode("utf-16"), ""),
        ("unicode.csv", ("step,loss\n" + LINES).encode("utf-16"), ""),
        ("printed.txt", str(ROWS), "30 lines"),
        ("printed.log", "\n".join(map(str, ROWS)), "30 lines"),
        ("cell.csv", "step,loss\n" + LINES + "1500,", CUT),
        ("table.txt", "step\tloss\n" + lines("{step}\t{loss}\n"), ""),
        (
            "joined.csv",
            "step,loss\n" + LINES[: LINES.index("500,")] + "step,loss\n" + LINES[LINES.index("500,") :],
            "its header is there several times",
        ),
        ("whole.csv", "step,loss\n" + LINES.rstrip(), ""),
        ("cut.csv", "step,loss\n" + LINES + "1500,3", CUT),
        ("step.csv", "step,loss\n" + LINES + "15", CUT),
        ("cut.jsonl", lines('{{"step": {step}, "loss": {loss}}}\n') + '{"step": 1500, "loss": 3', CUT),
        ("cut_inside.jsonl", lines('{{"step": {step}, "loss": {loss}}}\n') + '{"step": 1500, "train": {"loss": 3', CUT),
        ("cut.log", lines("step {step} | loss {loss} | x\n") + "step 1500 | loss 3", CUT),
    ],
)
def test_the_same_log_in_every_form(tmp_path, name, content, note):
    curve = read(tmp_path, name, content)
    log = curve.log()
    assert log["step"].tolist() == STEPS
    assert log["loss"].tolist() == pytest.approx(LOSSES)
    assert note in " ".join(curve.notes)
    assert bool(curve.notes) == bool(note)
    assert curve.facts.final_step == (9000 if name == "current.jsonl" else None)


@pytest.mark.parametrize(
    ("totals", "final_step"),
    [
        ({"total_steps": 9000}, 9000),
        ({"max_steps": -1}, None),  # as the arguments of a Trainer say that it is not limited
        ({"max_steps": -1, "total_steps": 9000}, 9000),
        ({"total_steps": 9000, "max_steps": 9000}, 9000),
        ({"total_steps": None, "max_steps": 9000, "train_iters": 0}, 9000),
    ],
)
def test_the_last_step_is_what_all_totals_say(tmp_path, totals, final_step):
    curve = read(tmp_path, "totals.jsonl", "".join(json.dumps(row | totals) + "\n" for row in ROWS))
    assert curve.facts.final_step == final_step
    assert curve.notes == ()


def test_the_last_step_is_unknown_where_two_totals_contradict_each_other(tmp_path):
    totals = {"max_steps": 9000, "num_training_steps": None, "total_steps": 18000}
    curve = read(tmp_path, "totals.jsonl", "".join(json.dumps(row | totals) + "\n" for row in ROWS))
    assert curve.facts.final_step is None
    assert curve.notes == ("the last step is not read, since max_steps and total_steps contradict each other",)


@pytest.mark.parametrize(
    ("steps", "losses", "expected"),
    [
        (
            ["1.000", "2.000", "3.000"],
            ["4,5", "3,25", "3"],
            [1000, 2000, 3000],
        ),  # the losses tell that dots are not decimal
        (["999", "1.000", "1.001"], ["4,5", "3,25", "3,0"], [999, 1000, 1001]),
        (["999.000", "1.000.000", "1.001.000"], ["4.5", "3.25", "3"], [999000, 1000000, 1001000]),
        (["1.0", "2.0", "3.0"], ["4,5", "3,25", "3"], [1, 2, 3]),
        (["1.000", "2.000", "3.000"], ["4.5", "3.25", "3"], [1, 2, 3]),  # a float with three decimals
    ],
)
def test_the_whole_table_tells_whether_dots_separate_thousands(tmp_path, steps, losses, expected):
    content = "step;loss\n" + "".join(f"{step};{loss}\n" for step, loss in zip(steps, losses, strict=True))
    log = read(tmp_path, "dots.csv", content).log()
    assert log["step"].tolist() == expected
    assert log["loss"].tolist() == [4.5, 3.25, 3.0]


@pytest.mark.parametrize("steps", [["1.000", "2.00", "3.000.000"], ["0.001", "1.000.000", "2.000.000"]])
def test_dots_of_which_some_cannot_separate_thousands_are_refused(tmp_path, steps):
    content = "step;loss\n" + "".join(f"{step};4.5\n" for step in steps)
    with pytest.raises(UserError, match="column step contains values that are not numbers"):
        read(tmp_path, "dots.csv", content)


def test_a_text_log_that_begins_with_a_table_of_other_words_is_a_text_log(tmp_path):
    curve = read(tmp_path, "a.log", "layers heads\n12 12\n" + lines("step {step} loss {loss}\n"))
    assert curve.log()["step"].tolist() == STEPS


def test_an_empty_cell_between_tabs_is_missing(tmp_path):
    log = read(tmp_path, "a.txt", "step\tloss\tlr\n1\t4.5\t0.1\n2\t\t0.2\n3\t4.3\t0.3\n").log()
    assert np.isnan(log["loss"]).tolist() == [False, True, False]


ALIGNED = "   step     loss\n" + lines("{step:>7} {loss:>8}\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", ALIGNED),
        ("a.csv", ALIGNED),
        ("a.txt", "      step    loss\n" + lines("7  {step:>7} {loss:>8}\n")),
        ("a.md", "| step | loss |\n|-----:|-----:|\n" + lines("| {step} | {loss} |\n")),
        ("a.txt", "step | loss\n-----+-----\n" + lines("{step} | {comma}\n")),
        ("a.md", "Here is my log:\n\n| Step | Train loss |\n|---|---|\n" + lines("| {step} | {loss} |\n")),
        (
            "a.md",
            "| Training Loss | Epoch | Step | Validation Loss |\n|:--|:--|:--|:--|\n| No log | 0.1 | 10 | 3.6 |\n",
        ),
    ],
)
def test_table_aligned_by_spaces_or_bars_is_refused_by_name(name, text, tmp_path):
    refusal = r"no line with a step and a loss.* or a CSV with|is no CSV; separate the columns by commas: step,loss"
    with pytest.raises(UserError, match=refusal):
        read(tmp_path, name, text)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:a8\nsize 3\n", "git lfs pull"),
        ("trainer_state.json", "version https://git-lfs.github.com/spec/v1\noid sha256:a8\nsize 3\n", "git lfs pull"),
        ("a.log", "hello\nworld\n", "give a pattern of its lines, such as --pattern"),
        ("a.log", "{'loss': 3.0, 'epoch': 0.1}\n" * 3, "3 lines have a loss and no step"),
        ("a.jsonl", '{"epoch": 1, "loss": 3.5}\n{"epoch": 2, "loss": 3.0}\n', "its columns are epoch, loss"),
        ("a.csv", 'step,loss\n1,"3,1"\n2,"a, b"\n', "column loss contains values that are not numbers"),
    ],
)
def test_what_is_no_log_is_named(tmp_path, name, content, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, name, content)


def test_entries_of_a_state_without_a_step_are_left_out_and_rates_have_two_names(tmp_path):
    history = [
        None,
        [1],
        {"step": None, "loss": 3.0},
        {"step": float("nan"), "loss": 3.0},
        {"step": "x"},
        {"predict_loss": 1.0},
        {"step": 10, "loss": 3.5, "lr": 0.1},
    ]
    history += [{"step": 20, "loss": float("nan"), "learning_rate": 0.2}, {"step": 20, "eval_loss": float("nan")}]
    curve = read(tmp_path, "trainer_state.json", json.dumps({"log_history": history, "global_step": 20}))
    assert curve.log()["learning_rate"].tolist() == [0.1, 0.2]
    assert curve.log()["loss"].tolist() == [3.5, np.inf]
    assert curve.notes == (
        "6 of 9 entries have no step: they were left out",
        "the validation loss is not a number since step 20",
    )


def test_the_folder_of_a_monitor_is_named_with_the_remedy(tmp_path):
    (tmp_path / "training" / "tiny").mkdir(parents=True)
    for step in (100, 200):  # each of them holds a part of the losses
        pd.DataFrame({"step": [step], "loss": [2.0]}).to_parquet(tmp_path / f"training/tiny/step-{step:08d}.parquet")
    with pytest.raises(UserError, match="the folder of a live monitor; toposcale watch and make advice"):
        loss_curves.read(tmp_path)


def test_a_folder_of_trainings_names_them(tmp_path):
    for name in ("a/checkpoint-5", "b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "trainer_state.json").write_text("{}")
    with pytest.raises(UserError, match="no training of its own; give one of a, b"):
        loss_curves.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "end"),
    [
        ('[{"step": 1, "loss": 3.5},\n {"step": 2, "loss": 3.4}, {"step": 3, "lo', '{"step": 3, "lo'),
        ('[\n {\n  "step": 1,\n  "loss": 3.5\n },\n {\n  "step": 2,\n  "loss": 3.4\n },\n {', "{"),
        ('{\n "step": 1,\n "loss": 3.5\n}\n{\n "step": 2,\n "loss": 3.4\n}\n', ""),
        ('{"step": 1, "loss": 3.5},\n{"step": 2, "loss": 3.4},\n', ""),
        ('{"step": 1, "loss": 3.5}{"step": 2, "loss": 3.4}', ""),
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_objects_one_after_another_are_read_up_to_one_that_is_cut(tmp_path, name, content, end):
    (tmp_path / name).write_text(content)
    file = log_files.read(tmp_path / name)
    assert file.columns["step"].tolist() == [1, 2]
    assert file.columns["loss"].tolist() == [3.5, 3.4]
    assert file.notes == ((f"the last line, {end!r}, is half-written: it was dropped",) if end else ())


def test_a_damaged_object_before_others_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('[{"step": 1, "loss": 3.5}, {"step": 2, "loss": 3.4}, {"st, {"step": 4}]')
    with pytest.raises(UserError, match="not JSON"):
        loss_curves.read(tmp_path / "a.json")


@pytest.mark.parametrize("separator", [" ", "\u202f", "'"])
def test_thousands_may_be_separated_by_spaces_or_apostrophes(tmp_path, separator):
    rows = "".join(f"{step:,};{step};{separator}\n".replace(",", separator) for step in (0, 950, 1000, 1_234_567))
    (tmp_path / "a.csv").write_text("step;loss;note\n" + rows.replace(";0;", ";1,5;"))
    columns = log_files.read(tmp_path / "a.csv").columns
    assert columns["step"].tolist() == [0, 950, 1000, 1_234_567]
    assert columns["loss"].tolist() == [1.5, 950, 1000, 1_234_567]


def test_a_long_last_line_is_no_traceback(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss\n" + LINES + "x" * 5000)
    with pytest.raises(UserError, match="line 32: Expected 2 columns, got 1"):
        loss_curves.read(tmp_path / "a.csv")


def test_decimal_commas_between_commas_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss\n0,10,95\n50,8,58\n")
    with pytest.raises(
        UserError,
        match=r"line 2: Expected 2 columns, got 3: .* where decimals are written with commas, separate the columns by sem",
    ):
        loss_curves.read(tmp_path / "a.csv")


EVALUATED = [{"step": row["step"], "loss": row["loss"] + 0.1} for row in ROWS[::5]]
COLUMNS = {"step": STEPS, "loss": LOSSES}


@pytest.mark.parametrize(
    "content",
    [
        {"train": ROWS},
        {"samples": [{"step": 0, "text": "x"}], "log": ROWS},
        {"run": {"config": {"lr": 0.1}, "rows": ROWS}},
        {"history": {"train": COLUMNS}},
    ],
)
def test_the_only_list_of_losses_in_an_object_is_read(tmp_path, content):
    assert read(tmp_path, "a.json", json.dumps(content)).log()["loss"].tolist() == LOSSES


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"train": ROWS, "val": EVALUATED}, r"2 lists hold rows \(train, val\); give one: jq .train a.json > one.json"),
        (
            {"history": {"train": COLUMNS, "val": COLUMNS}},
            r"2 lists hold rows \(history.train, history.val\); give one: jq .history.train a.json > one.json",
        ),
        ({"a": ROWS, "b": ROWS}, r"2 lists hold rows \(a, b\); give one: jq .a a.json > one.json"),
        ({"train_loss": LOSSES, "val_loss": LOSSES[:5]}, r"not of one length \(train_loss 30, val_loss 5\)"),
    ],
)
def test_lists_that_no_name_tells_apart_are_asked_about(tmp_path, content, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, "a.json", json.dumps(content))


def test_rows_without_a_step_and_a_loss_are_left_out(tmp_path):
    summary = '{"event": "summary", "iterations": 1450, "best_val_loss": 3.0}\n'
    rows = "".join(f"{step},{loss},\n,,0.9\n" for step, loss in zip(STEPS, LOSSES, strict=True))
    for name, content in (("a.jsonl", lines('{{"iter": {step}, "loss": {loss}}}\n') + summary), ("a.csv", rows)):
        curve = read(tmp_path, name, content if name == "a.jsonl" else "global_step,loss,gpu\n" + content)
        assert curve.log()["loss"].tolist() == LOSSES
        assert curve.notes == ()


def test_read_asks_for_a_run_behind_rows_without_a_step(tmp_path):
    header, rows = "step,loss,gpu\n", lines("{step},{loss},0.1\n")
    (tmp_path / "a.csv").write_text(header + ",,0.9\n" * 40 + rows + header + rows)
    with pytest.raises(UserError, match=r"2 runs \(run 1: 30 rows"):
        loss_curves.read(tmp_path / "a.csv")
    curve = loss_curves.read(tmp_path / "a.csv", run=2)
    assert curve.log()["loss"].tolist() == LOSSES


def test_a_test_loss_beside_a_validation_loss_is_left_out(tmp_path):
    curve = read(tmp_path, "a.csv", "step,loss,val_loss,test_loss\n" + lines("{step},{loss},{loss},9.0\n"))
    assert curve.columns["validation_loss"].tolist() == LOSSES
    assert curve.notes == ("test_loss was left out, since there is a validation loss",)


@pytest.mark.parametrize("field", ["log", "message"])
def test_text_in_a_field_of_json_is_named_with_its_command(tmp_path, field):
    content = lines(f'{{{{"{field}": "step {{step}} | loss {{loss}}", "stream": "stdout"}}}}\n')
    with pytest.raises(
        UserError, match=f"its field {field} holds a text log; take it out: jq -r .{field} container.log"
    ):
        read(tmp_path, "container.log", content)


@pytest.mark.parametrize(
    ("name", "damaged", "said"),
    [
        ("a.csv", "500,3", r"line 12: Expected 3 columns, got 2: 500,3; delete that line"),
        ("a.csv", "500,4.3,0.1550,4.2,0.1", r"line 12: Expected 3 columns, got 5"),
        ("a.csv", "500,4.x,0.1", r"column loss contains values that are not numbers \(line 12 has '4.x'\)"),
        ("a.csv", "50\0,4.3,0.1", r"NUL bytes in line 12, .* delete the line: sed 12d a.csv"),
        (
            "a.jsonl",
            '{"step": 500, "loss": 4.3}{"step": 550, "loss": 4.2}',
            r"line 11 holds two objects .* sed 11d a.jsonl",
        ),
        ("a.jsonl", '{"step": 500, "lo', r"line 11 is not JSON, .* delete it: sed 11d a.jsonl"),
    ],
)
def test_a_damaged_line_before_others_is_named_with_the_remedy(tmp_path, name, damaged, said):
    text = "{step},{loss},0.1\n" if name == "a.csv" else '{{"step": {step}, "loss": {loss}}}\n'
    rows = lines(text).splitlines()
    rows[10] = damaged
    header = ["step,loss,lr"] if name == "a.csv" else []
    with pytest.raises(UserError, match=said):
        read(tmp_path, name, "\n".join([*header, *rows]) + "\n")


def test_a_column_that_begins_in_the_middle_is_named(tmp_path):
    rows = [*lines("{step},{loss}\n").splitlines()[:20], *lines("{step},{loss},0.1\n").splitlines()[20:]]
    with pytest.raises(UserError, match="line 22: Expected 2 columns, got 3"):
        read(tmp_path, "a.csv", "\n".join(["step,loss", *rows]) + "\n")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.xlsx", b"PK\x03\x04rest", "an Excel workbook or a zip archive; save the sheet with the losses as CSV"),
        ("a.ipynb", b'{"cells": []}', "a notebook; copy the table of losses"),
        ("model.gguf", b"GGUF\x03", "GGUF weights; give the log of the training"),
    ],
)
def test_files_of_other_kinds_are_named_with_the_remedy(tmp_path, name, content, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, name, content)


def test_read_asks_for_a_run_of_concatenated_tables(tmp_path):
    with pytest.raises(UserError, match=r"2 runs \(run 1: 30 rows"):
        read(tmp_path, "a.csv", "step,loss\n" + LINES.replace(",", ",1") + "step,loss\n" + LINES)
    assert loss_curves.read(tmp_path / "a.csv", run=2).log()["loss"].tolist() == LOSSES


@pytest.mark.parametrize("content", ["names", "keys"])
def test_many_names_cost_no_more_than_their_length(tmp_path, content):
    """Columns of one name, and objects with names of their own."""

    def seconds(n):
        rows = [{f"k{row}": row, "step": row, "loss": 3.0} for row in range(n)]
        text = ",".join(["loss"] * n) + "\n1\n" if content == "names" else json.dumps(rows)
        start = time.process_time()
        if content == "names":
            with pytest.raises(UserError, match="two columns are called loss"):
                read(tmp_path, "a.csv", text)
        else:
            assert len(read(tmp_path, "a.json", text).columns["step"]) == n
        return time.process_time() - start

    seconds(1000)
    # The least of three: on a busy machine one may take several times as long.
    few, many = (min(seconds(n) for _ in range(3)) for n in (5000, 40_000))
    assert many < 16 * few + 0.5


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("name", ["losses.csv", "losses.parquet"])
def test_tables_are_read_without_threads_that_outlive_the_interpreter(tmp_path, name):
    frame = pd.DataFrame(ROWS)
    frame.to_csv(tmp_path / name, index=False) if name.endswith("csv") else frame.to_parquet(tmp_path / name)
    code = (
        "import os, sys\n"
        "from toposcale.forecasting.logs import loss_curves, table_files\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "loss_curves.read(sys.argv[1])\n"
        "sys.exit(len(os.listdir('/proc/self/task')) - before)\n"
    )
    added = subprocess.run([sys.executable, "-c", code, tmp_path / name], check=False).returncode
    assert added <= 1  # that of Ctrl-C, which pyarrow ends itself


def test_facts_beside_the_rows_of_an_object_are_read(tmp_path):
    state = {"global_step": 1450, "max_steps": 8000, "num_train_epochs": 3, "log_history": ROWS}
    assert read(tmp_path, "state.json", json.dumps(state)).facts.final_step == 8000


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()])
def test_numbers_of_a_table_are_read_whatever_their_type_chunks_and_gaps(kind):
    chunks = [pa.array([9, 9, 1, None, 3], kind).slice(2), pa.array([], kind), pa.array([4], kind)]
    [values] = columns_of(pa.table({"loss": pa.chunked_array(chunks)}), "log.parquet").values()
    np.testing.assert_array_equal(values, [1, np.nan, 3, 4])
    assert values.dtype == np.float64


def test_a_missing_number_is_nan_and_one_that_is_not_finite_infinite():
    [values] = columns_of(pa.table({"loss": [1.0, None, float("nan"), -np.inf]}), "log.parquet").values()
    np.testing.assert_array_equal(values, [1, np.nan, np.inf, -np.inf])


def test_weights_are_named_with_the_command_that_describes_them(tmp_path):
    weights = {"w": torch.eye(3)}
    safetensors.torch.save_file(weights, tmp_path / "a.safetensors")
    torch.save(weights, tmp_path / "b.pt")
    torch.save(weights, tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "d.gz").write_bytes(gzip.compress((tmp_path / "a.safetensors").read_bytes()))
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(UserError, match=f"weights of a model; .* toposcale describe {path}"):
            loss_curves.read(path)


def exported():
    """The export of one TensorBoard curve."""
    return "Wall time,Step,Value\n" + "".join(
        f"17000000{step:04d}.5,{step},{loss}\n" for step, loss in zip(STEPS, LOSSES, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("train_loss.csv", "loss"),
        ("run-a-tag-train_loss.csv", "loss"),
        ("run-a-tag-eval_loss.csv", "validation_loss"),
        ("run-validation-tag-loss.csv", "validation_loss"),
        ("run-validation-tag-train_loss.csv", "loss"),
    ],
)
def test_the_name_of_the_file_tells_the_curve_that_tensorboard_exports(name, quantity, tmp_path):
    curve = read(tmp_path, name, exported())
    assert curve.columns[quantity].tolist() == LOSSES
    assert curve.names == {"step": "Step", quantity: "Value"}


@pytest.mark.parametrize(
    "name",
    [
        "run-a-tag-train_learning_rate.csv",
        "curve.csv",
        "lr.csv",
        "lr-AdamW.csv",
        "run-a-tag-grad_norm.csv",
        "run-a-tag-epoch_loss.csv",
        "run-a-tag-lm loss vs samples.csv",
        "run-a-tag-train_aux_loss.csv",
        "run-a-tag-train_reward.csv",
    ],
)
def test_the_export_of_another_curve_than_the_loss_is_refused(name, tmp_path):
    with pytest.raises(UserError, match=r"nothing says that Value is the loss of a step: .* --loss-column Value"):
        read(tmp_path, name, exported())
    assert loss_curves.read(tmp_path / name, loss_column="Value").columns["loss"].tolist() == LOSSES


def test_a_value_of_several_quantities_is_no_loss(tmp_path):
    features = pd.DataFrame({"step": [1, 1], "feature": ["h0", "h1"], "value": [3.0, 2.0]})
    features.to_parquet(tmp_path / "features.parquet")
    with pytest.raises(UserError, match="no column for loss"):
        loss_curves.read(tmp_path / "features.parquet")


@pytest.mark.parametrize(("name", "quantity"), [("train_loss", "loss"), ("val_loss", "validation_loss"), ("lr", "")])
def test_the_file_of_a_metric_of_mlflow_has_its_name(name, quantity, tmp_path):
    content = lines("1700000000000 {loss} {step}\n")
    if quantity:
        assert read(tmp_path, name, content).columns[quantity].tolist() == LOSSES
    else:
        with pytest.raises(UserError, match="nothing says that value is the loss of a step"):
            read(tmp_path, name, content)
