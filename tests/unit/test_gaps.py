"""What is wrong with one checkpoint is a gap of it; what every checkpoint shares ends the run."""

import errno
from types import SimpleNamespace

import pytest

import embeddings
from _checkpoints import noted_if_missing
from toposcale.checkpoints.checkpoint import LeftOutError
from toposcale.io.errors import SharedError, UserError, is_shared, reason_of


class Panic(BaseException):
    """As libraries in Rust raise it."""


def job(tmp_path, *, allow_missing=True):
    """A job on two checkpoints that are not made here."""
    files = [str(tmp_path / f"{step}.safetensors") for step in (1, 2)]
    return SimpleNamespace(
        wildcards=SimpleNamespace(model="m"),
        params=SimpleNamespace(steps=[1, 2], allow_missing=allow_missing),
        input=SimpleNamespace(checkpoints=files),
    )


def measured(job, warning_rows, error):
    """The steps that are measured where the first one raises an error."""
    steps = []
    for step, file in zip(job.params.steps, job.input.checkpoints, strict=True):
        with noted_if_missing(job, "weights", step, file, warning_rows):
            if step == 1:
                raise error
            steps.append(step)
    return steps


OF_ONE = [
    UserError("a.bin: damaged"),
    ValueError("weight must not be empty"),
    OverflowError("int too big to convert"),
    RuntimeError("view size is not compatible"),
    RecursionError("maximum recursion depth exceeded"),
    PermissionError(errno.EACCES, "Permission denied"),
    Panic("called `Option::unwrap()` on a `None` value"),
]
SHARED = [
    SharedError("no hub"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    OSError(errno.ENOSPC, "No space left on device"),
    KeyboardInterrupt(),
    SystemExit(1),
]


@pytest.mark.parametrize("error", OF_ONE, ids=lambda error: type(error).__name__)
def test_any_exception_over_one_checkpoint_is_a_gap_with_its_reason(tmp_path, error):
    noted = []
    assert measured(job(tmp_path), noted, error) == [2]
    [row] = noted
    assert (row["model"], row["step"], row["warning"]) == ("m", 1, reason_of(error))
    assert str(error) in row["warning"]


@pytest.mark.parametrize("error", SHARED, ids=lambda error: type(error).__name__)
def test_what_every_checkpoint_shares_ends_the_run(tmp_path, error):
    with pytest.raises(type(error)):
        measured(job(tmp_path), [], error)


def test_a_full_memory_of_torch_is_known_without_importing_it():
    torch = pytest.importorskip("torch")
    assert is_shared(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_shared(type("OutOfMemoryError", (ValueError,), {})("of a file"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert is_shared(caught.value)


def test_a_checkpoint_that_was_made_here_is_no_gap(tmp_path):
    with pytest.raises(ValueError, match="odd"):
        measured(job(tmp_path, allow_missing=False), [], ValueError("odd"))


def test_a_checkpoint_that_is_left_out_is_noted_as_such(tmp_path):
    noted = []
    measured(job(tmp_path), noted, LeftOutError("equal", "main"))
    assert noted[0]["warning"] == "serves the weights of main"


class Text:
    probe_texts = tuple(f"a sentence of a probe, number {number}" for number in range(6))


def tokens(text, tokenizer):
    model = SimpleNamespace(context=8)
    return embeddings.tokens_of(model, tokenizer, text, {"texts": 6, "max_tokens": 8})


def test_a_short_text_is_shared_and_a_tokenizer_that_reads_nothing_is_not():
    short = SimpleNamespace(probe_texts=Text.probe_texts[:4])
    with pytest.raises(SharedError, match="4 probe texts of at least 100 characters"):
        tokens(short, None)
    with pytest.raises(UserError, match="its tokenizer gives two tokens or more for 0 of the 6") as caught:
        tokens(Text(), lambda texts, **_: {"input_ids": [[1]] * len(texts)})
    assert not is_shared(caught.value)
