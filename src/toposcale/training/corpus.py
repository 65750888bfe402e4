"""Corpora: sources of training and validation texts, and their tokenizers."""

from __future__ import annotations

import ast
import glob
import hashlib
import json
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from toposcale.io import tensor_files
from toposcale.io.errors import UserError, as_user_error
from toposcale.io.files import regular_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

N_CHARACTERS = 128  # the vocabulary of the `characters` tokenizer: ASCII

# Parts of the standard library that hold tests, vendored tools or installed packages, not documentation.
_SKIPPED_FOLDERS = {
    "test", "tests", "idlelib", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3",
    "ensurepip", "turtledemo", "_vendor",
}  # fmt: skip
_VALIDATION_SHARE = 10


@dataclass(frozen=True)
class Corpus:
    """Tokens of a training and a validation text.

    `train` and `validation` are uint16 (n,), `dropped` counts the characters left out by split, and `sha256` is the hash
    of each text in UTF-8. `probe_texts` are validation paragraphs as read, with the characters that the tokenizer drops;
    `tokenizer_json` is the trained tokenizer, for `bpe` only.
    """

    source: str
    tokenizer: str
    vocab_size: int
    train: NDArray[np.uint16]
    validation: NDArray[np.uint16]
    dropped: Mapping[str, int]
    sha256: Mapping[str, str]
    probe_texts: tuple[str, ...]
    tokenizer_json: str | None = None

    def encode(self, text: str) -> NDArray[np.uint16]:
        """Return the tokens (n,) of a text by this corpus' tokenizer; unknown characters are dropped."""
        if self._bpe is None:
            return encode_characters(text)[0]
        return _encode_bpe(self._bpe, text)

    @cached_property
    def _bpe(self) -> Tokenizer | None:
        if self.tokenizer_json is None:
            return None
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.tokenizer_json)


def build_corpus(
    source: Literal["python-docs", "wikitext-2", "files"] = "python-docs",
    tokenizer: Literal["characters", "bpe"] = "characters",
    *,
    context: int,
    vocab_size: int = N_CHARACTERS,
    train: str | Sequence[str] = (),
    validation: str | Sequence[str] = (),
) -> Corpus:
    """Read, tokenize and check a corpus.

    `train` and `validation` are paths or globs, read for the source `files` only; `vocab_size` is used by `bpe` only.
    Raise UserError for a text that is missing, empty, not UTF-8 or not longer than `context` tokens.
    """
    if source == "files":
        texts = {"train": read_files(train, "train"), "validation": read_files(validation, "validation")}
    else:
        texts = python_docs() if source == "python-docs" else wikitext_2()
    for split, text in texts.items():
        if not text.strip():
            raise UserError(f"corpus.{split}: the {split} text is empty; give a text of more than {context} tokens")
    if tokenizer == "characters":
        bpe, vocab_size = None, N_CHARACTERS
        encoded = {split: encode_characters(text) for split, text in texts.items()}
    else:
        bpe = train_bpe(texts["train"], vocab_size)
        encoded = {split: (_encode_bpe(bpe, text), 0) for split, text in texts.items()}
    for split, (tokens, _) in encoded.items():
        if len(tokens) <= context:
            raise UserError(
                f"corpus.{split}: the {split} text has {len(tokens)} tokens, but a context of {context} needs "
                f"at least {context + 1}; give more text or a shorter context"
            )
    return Corpus(
        *(source, tokenizer, vocab_size, encoded["train"][0], encoded["validation"][0]),
        dropped={split: dropped for split, (_, dropped) in encoded.items()},
        sha256={split: hashlib.sha256(text.encode()).hexdigest() for split, text in texts.items()},
        probe_texts=tuple(probe_texts(texts["validation"], count=1000)),
        tokenizer_json=None if bpe is None else bpe.to_str(),
    )


def encode_characters(text: str) -> tuple[NDArray[np.uint16], int]:
    """Return the ASCII codes (n,) of a text, and the number of dropped characters that are not ASCII."""
    ascii_text = text.encode("ascii", errors="ignore")
    return np.frombuffer(ascii_text, dtype=np.uint8).astype(np.uint16), len(text) - len(ascii_text)


def train_bpe(text: str, vocab_size: int) -> Tokenizer:
    """Train a byte-level byte-pair encoding of exactly `vocab_size` tokens, the 256 bytes among them.

    Raise UserError if the size is outside 256 to 65,536, or if the text has too few repeated pairs.
    """
    if not 256 <= vocab_size <= 65536:
        raise UserError(f"corpus.vocab_size: {vocab_size}, but bpe takes 256 (the bytes) to 65536")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    size = tokenizer.get_vocab_size()
    if size != vocab_size:
        raise UserError(f"corpus.vocab_size: {vocab_size}, but the training text yields {size} tokens; ask for fewer")
    return tokenizer


def _encode_bpe(tokenizer: Tokenizer, text: str) -> NDArray[np.uint16]:
    lines = tokenizer.encode_batch_fast(text.splitlines(keepends=True), add_special_tokens=False)
    return np.concatenate([np.zeros(0, np.uint16), *(np.array(line.ids, dtype=np.uint16) for line in lines)])


def read_files(patterns: str | Sequence[str], split: str) -> str:
    """Read files by path or glob, sorted and joined by line ends; raise UserError if one is missing or not UTF-8."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    if not patterns:
        raise UserError(f"corpus.{split}: no file is named; give a path or a glob")
    return "\n".join(_read_utf8(path) for pattern in patterns for path in matches(pattern, split))


def matches(pattern: str, split: str) -> list[Path]:
    """Return the file of a path, or those of a glob, sorted; raise UserError if there is none."""
    path = Path(pattern)
    if path.exists() and not path.is_dir():
        return [path]
    if not glob.has_magic(pattern):
        reason = "is a folder; give its files, as in FOLDER/*.txt" if path.is_dir() else "does not exist"
        raise UserError(f"corpus.{split}: {pattern} {reason}")
    files = sorted(Path(name) for name in glob.glob(pattern, recursive=True) if Path(name).is_file())
    if not files:
        raise UserError(f"corpus.{split}: no file matches {pattern!r}")
    return files


def _read_utf8(path: Path) -> str:
    try:
        return regular_file(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 at byte offset {error.start} (byte 0x{error.object[error.start]:02x}); "
            "convert it to UTF-8"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def python_docs() -> dict[str, str]:
    """Return the English text that comes with Python: pydoc's topics and the standard library's docstrings.

    It is about 2 MB, the same for the same Python build. Every tenth document (a topic, or one module's docstrings) is
    validation text. Raise UserError if this Python has no sources.
    """
    documents: list[str] = []
    with suppress(ImportError):
        from pydoc_data.topics import topics

        documents += [topics[name].strip() for name in sorted(topics)]
    documents += _standard_library_docstrings()
    if not documents:
        raise UserError(
            "corpus.source: this Python comes without the sources of its library, which python-docs needs; "
            "use corpus.source: files"
        )
    validation = documents[_VALIDATION_SHARE - 1 :: _VALIDATION_SHARE]
    del documents[_VALIDATION_SHARE - 1 :: _VALIDATION_SHARE]
    return {"train": "\n\n".join(documents), "validation": "\n\n".join(validation)}


def _standard_library_docstrings() -> Iterator[str]:
    """Yield one document for each module with docstrings, in the order of paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        paths += [Path(folder, name) for name in files if name.endswith(".py")]
    for path in sorted(paths, key=lambda path: path.relative_to(root).as_posix()):
        if docstrings := list(_docstrings(path.read_bytes())):
            yield "\n\n".join(docstrings)


def _docstrings(source: bytes) -> Iterator[str]:
    """Yield the docstrings of a module and of its classes and functions, from top to bottom."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old modules hold invalid escapes
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = (ast.get_docstring(node) or "").strip()
            if text:
                yield text
        inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
        pending += reversed(inner)


def wikitext_2() -> dict[str, str]:
    """Fetch raw WikiText-2 (Merity et al. 2016, arXiv 1609.07843) from the Hub or its cache, or raise UserError."""
    import pyarrow.parquet as pq
    from huggingface_hub import hf_hub_download

    texts, remedy = {}, "set corpus.source to files and corpus.train and corpus.validation to local text files"
    for split in ("train", "validation"):
        # The errors of the client and those of its transport share no base.
        with as_user_error("corpus.source", "wikitext-2 could not be fetched", Exception, remedy=remedy):
            file = f"wikitext-2-raw-v1/{split}-00000-of-00001.parquet"
            path = hf_hub_download("Salesforce/wikitext", file, repo_type="dataset")
        with as_user_error(path, "not a readable copy of wikitext-2", remedy="delete it and run again"):
            texts[split] = "".join(pq.read_table(path, columns=["text"]).column("text").to_pylist())
    return texts


def probe_texts(text: str, *, count: int = 200, minimum: int = 100) -> list[str]:
    """Return the first `count` paragraphs of at least `minimum` characters, or fewer if the text has fewer.

    Paragraphs of hard-wrapped text are separated by blank lines. If most characters are in lines of over `minimum`
    characters, the text is not hard-wrapped, and each line is a paragraph. If such paragraphs are less than a tenth of the
    text (verse, code, dialogue), it is split into pieces of twice `minimum` characters instead.
    """
    lines = text.splitlines()
    in_long_lines = sum(len(line) for line in lines if len(line) > minimum)
    paragraphs = lines if 2 * in_long_lines > len(text) else re.split(r"\n\s*\n", text)
    stripped = (paragraph.strip() for paragraph in paragraphs)
    long_ones = [paragraph for paragraph in stripped if len(paragraph) >= minimum]
    if 10 * sum(map(len, long_ones)) > len(text):
        return long_ones[:count]
    pieces = [text[start : start + 2 * minimum] for start in range(0, len(text) - minimum, 2 * minimum)]
    return pieces[:count]


def save_corpus(corpus: Corpus, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the tokens as safetensors, and everything else as JSON in its metadata; equal corpora give equal bytes."""
    facts = {field.name: getattr(corpus, field.name) for field in fields(corpus)}
    arrays = {split: facts.pop(split) for split in ("train", "validation")}
    tensor_files.write(path, arrays, {**(metadata or {}), "corpus": json.dumps(facts, sort_keys=True)})


def load_corpus(path: str | Path) -> Corpus:
    """Read a corpus of `save_corpus`; raise UserError if the file is damaged or of another kind."""
    arrays, metadata = tensor_files.read(path)
    if set(arrays) != {"train", "validation"} or "corpus" not in metadata:
        raise UserError(f"{path}: not a corpus; delete it and run again")
    facts = json.loads(metadata["corpus"])
    facts["probe_texts"] = tuple(facts["probe_texts"])
    return Corpus(train=arrays["train"], validation=arrays["validation"], **facts)
