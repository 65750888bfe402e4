"""Corpora: tokens, counts, splits, and one clear line for each kind of bad input."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toposcale.io.errors import UserError
from toposcale.training import corpus as corpora
from toposcale.training.corpus import (
    build_corpus,
    encode_characters,
    load_corpus,
    probe_texts,
    python_docs,
    read_files,
    save_corpus,
    train_bpe,
)

ENGLISH = "The quick brown fox jumps over the lazy dog, and the dog sleeps on.\n" * 60


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.txt").write_text(ENGLISH + "caf\u00e9 \u2014 d\u00e9j\u00e0\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_text(ENGLISH[:500], encoding="utf-8")
    return {"train": str(tmp_path / "train.txt"), "validation": str(tmp_path / "valid.txt")}


@given(st.text())
def test_encode_characters_characters_keep_ascii_and_count_rest(text):
    tokens, dropped = encode_characters(text)
    assert tokens.dtype == np.uint16
    assert bytes(tokens.astype(np.uint8)).decode("ascii") == "".join(c for c in text if ord(c) < 128)
    assert dropped == sum(ord(c) >= 128 for c in text)


def test_build_corpus_a_corpus_of_files(files):
    corpus = build_corpus("files", context=128, **files)
    text = Path(files["train"]).read_text(encoding="utf-8")
    assert corpus.vocab_size == 128
    assert dict(corpus.dropped) == {"train": 4, "validation": 0}
    assert corpus.sha256["train"] == hashlib.sha256(text.encode()).hexdigest()
    assert len(corpus.train) == len(text) - 4
    assert bytes(corpus.validation.astype(np.uint8)).decode() == ENGLISH[:500]
    np.testing.assert_array_equal(corpus.encode("Az\u00e9"), [65, 122])


def test_read_files_globs_are_sorted_and_joined_by_line_ends(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "d.md").write_text("not this")
    (tmp_path / "odd[1].txt").write_text("odd")
    assert read_files(str(tmp_path / "?.txt"), "train") == "a\nb\nc"
    assert read_files([str(tmp_path / "c.txt"), str(tmp_path / "[ab].txt")], "train") == "c\na\nb"
    assert read_files(str(tmp_path / "odd[1].txt"), "train") == "odd"


def one_line(error: pytest.ExceptionInfo) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_build_corpus_bad_files_get_one_line_each(tmp_path, files):
    def message(**changed: object) -> str:
        with pytest.raises(UserError) as error:
            build_corpus("files", **{"context": 128, **files, **changed})
        return one_line(error)

    missing = str(tmp_path / "nowhere.txt")
    assert message(train=missing) == f"corpus.train: {missing} does not exist"
    assert message(train=str(tmp_path / "*.csv")) == f"corpus.train: no file matches '{tmp_path}/*.csv'"
    assert "is a folder" in message(validation=str(tmp_path))
    assert message(train=[]) == "corpus.train: no file is named; give a path or a glob"
    (tmp_path / "empty.txt").write_text(" \n\n")
    assert message(validation=str(tmp_path / "empty.txt")).startswith("corpus.validation: the validation text is empty")
    (tmp_path / "latin.txt").write_bytes(b"caf" + b"\xc3\xa9" + b" \xe9t\xe9 and more")
    assert "latin.txt: not UTF-8 at byte offset 6 (byte 0xe9)" in message(train=str(tmp_path / "latin.txt"))
    (tmp_path / "cyrillic.txt").write_text("\u0436" * 1000, encoding="utf-8")
    assert "the train text has 0 tokens" in message(train=str(tmp_path / "cyrillic.txt"))


def test_build_corpus_text_needs_one_token_more_than_the_context(files):
    assert len(build_corpus("files", context=499, **files).validation) == 500
    with pytest.raises(UserError) as error:
        build_corpus("files", context=500, **files)
    assert "the validation text has 500 tokens, but a context of 500 needs at least 501" in one_line(error)


def test_build_corpus_bpe_lossless_and_learns_from_training_text(files, tmp_path):
    corpus = build_corpus("files", "bpe", vocab_size=280, context=64, **files)
    assert corpus.vocab_size == 280
    assert dict(corpus.dropped) == {"train": 0, "validation": 0}
    assert corpus.train.max() < 280
    assert len(corpus.train) < len(ENGLISH)
    text = "na\u00efve caf\u00e9 \U0001f600\r\n\ttabs"
    assert corpus._bpe.decode(corpus.encode(text).tolist()) == text
    Path(files["validation"]).write_text("zqzqzqzq " * 100)
    other = build_corpus("files", "bpe", vocab_size=280, context=64, **files)
    assert other.tokenizer_json == corpus.tokenizer_json
    np.testing.assert_array_equal(other.train, corpus.train)


def test_train_bpe_bpe_sizes_that_cannot_be():
    with pytest.raises(UserError, match="vocab_size: 255, but bpe takes 256"):
        train_bpe(ENGLISH, 255)
    with pytest.raises(UserError, match=r"vocab_size: 5000, but the training text yields \d+ tokens"):
        train_bpe(ENGLISH, 5000)


@pytest.mark.parametrize("tokenizer", ["characters", "bpe"])
def test_build_corpus_saving_and_loading(files, tmp_path, tokenizer):
    corpus = build_corpus("files", tokenizer, vocab_size=270, context=64, **files)
    for name in ("one", "two"):
        save_corpus(corpus, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    loaded = load_corpus(tmp_path / "one")
    for field in ("train", "validation"):
        assert getattr(loaded, field).dtype == np.uint16
        np.testing.assert_array_equal(getattr(loaded, field), getattr(corpus, field))
    for field in ("source", "tokenizer", "vocab_size", "dropped", "sha256", "probe_texts", "tokenizer_json"):
        assert getattr(loaded, field) == getattr(corpus, field)
    np.testing.assert_array_equal(loaded.encode("the fox"), corpus.encode("the fox"))
    (tmp_path / "one").write_bytes((tmp_path / "one").read_bytes()[:-3])
    with pytest.raises(UserError, match="one: not a complete safetensors file"):
        load_corpus(tmp_path / "one")


def test_probe_texts_of_wrapped_and_of_unwrapped_text():
    wrapped = "\n".join(["a line of some thirty-odd letters."] * 4)
    short = "too short"
    text = f"{wrapped}\n\n{short}\n \n{wrapped} end"
    assert probe_texts(text) == [wrapped, f"{wrapped} end"]
    lines = ["word " * 40 + str(index) for index in range(5)]
    assert probe_texts(" \n = Title = \n \n " + " \n ".join(lines)) == lines
    assert probe_texts(" \n".join(lines), count=2) == lines[:2]
    assert probe_texts("x" * 99) == []
    assert probe_texts("x" * 100) == ["x" * 100]


def test_probe_texts_of_text_without_paragraphs_are_pieces_of_it():
    verse = "\n\n".join(f"line {index} of a poem" for index in range(100))
    found = probe_texts(verse)
    assert "".join(found) == verse[: sum(map(len, found))]
    assert {len(piece) for piece in found[:-1]} == {200}
    assert len(verse) - sum(map(len, found)) < 200


def test_python_docs_english_docstrings_in_two_disjoint_splits():
    texts = python_docs()
    train, validation = texts["train"], texts["validation"]
    assert 1_000_000 < len(train) + len(validation) < 4_000_000
    assert 0.04 < len(validation) / len(train) < 0.25
    import json
    import textwrap

    assert json.dumps.__doc__.splitlines()[0] in train + validation
    assert textwrap.dedent.__doc__.splitlines()[0] in train + validation
    assert "import pytest" not in train
    # English: e is the commonest letter, and nearly all characters are ASCII.
    letters = [train.lower().count(chr(code)) for code in range(ord("a"), ord("z") + 1)]
    assert max(letters) == train.lower().count("e")
    assert encode_characters(train)[1] < 1e-3 * len(train)


def test_corpus_docstrings_found_from_top_to_bottom_and_code_not():
    source = b'''"""Module."""
x = """not a docstring"""
class A:
    """Class."""
    async def f(self):
        """Method."""
        def g(): "Inner."
if x:
    def h():
        r"""Raw \\d."""
'''
    assert list(corpora._docstrings(source)) == ["Module.", "Class.", "Method.", "Inner.", "Raw \\d."]
    assert list(corpora._docstrings(b"def broken(:")) == []


def test_build_corpus_fetches_wikitext_or_names_a_remedy(tmp_path, monkeypatch):
    import huggingface_hub

    def fetch(repository: str, name: str, *, repo_type: str) -> str:
        assert (repository, repo_type) == ("Salesforce/wikitext", "dataset")
        path = tmp_path / name.replace("/", "-")
        pq.write_table(pa.table({"text": ["", " = Title = \n", f" {ENGLISH[:200]} {path.stem[:19]}\n"]}), path)
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    corpus = build_corpus("wikitext-2", context=64)
    text = bytes(corpus.train.astype(np.uint8)).decode()
    assert text.startswith(" = Title = \n The quick")
    assert text.endswith("wikitext-2-raw-v1-t\n")

    def damaged(*_: object, **__: object) -> str:
        (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
        return str(tmp_path / "x.parquet")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", damaged)
    with pytest.raises(UserError, match=r"x\.parquet: not a readable copy of wikitext-2"):
        build_corpus("wikitext-2", context=64)

    def offline(*_: object, **__: object) -> str:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(UserError) as error:
        build_corpus("wikitext-2", context=64)
    assert "set corpus.source to files and corpus.train and corpus.validation" in one_line(error)


def test_build_corpus_same_bytes_in_another_process(files, tmp_path):
    script = (
        "import sys\n"
        "from toposcale.training.corpus import build_corpus, save_corpus\n"
        "files = {'train': sys.argv[1], 'validation': sys.argv[2]}\n"
        "corpus = build_corpus('files', 'bpe', vocab_size=280, context=64, **files)\n"
        "save_corpus(corpus, sys.argv[3])\n"
        "assert 'torch' not in sys.modules\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    written = []
    for seed in ("1", "2"):
        path = tmp_path / f"corpus-{seed}"
        command = [sys.executable, "-c", script, files["train"], files["validation"], str(path)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": seed})
        written.append(path.read_bytes())
    assert written[0] == written[1]
