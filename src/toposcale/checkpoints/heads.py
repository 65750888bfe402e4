"""Attention matrices split by head, as the architecture says: rows of queries, keys and values, columns of the output."""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toposcale.io.errors import UserError
from toposcale.io.files import parse_json
from toposcale.io.tensor_files import read_metadata

# One matrix each for queries, keys and values: rows by head.
_SINGLE = re.compile(r"(^|\.)(attention|attn|self_attn|self_attention)\.(.*\.)?(q|k|v)_proj\.weight$")
# All three in one matrix: first all queries, then all keys, then all values; or the three of one head after another.
_FUSED_BY_PART = re.compile(r"(^|\.)(attention\.qkv|attn\.c_attn|attn\.Wqkv)\.weight$")
_FUSED_BY_HEAD = re.compile(r"(^|\.)(attention|self_attention)\.query_key_value\.weight$")
# What puts the heads together again: columns by head.
_OUTPUT = re.compile(
    r"(^|\.)(attention\.projection|attn\.c_proj|(attention|self_attention|self_attn)\.dense"
    r"|(attention|attn|self_attn)\.(.*\.)?(o_proj|out_proj))\.weight$"
)
_PARTS = ("query", "key", "value")


class Heads(NamedTuple):
    """Number of heads of an attention layer, and of those of its keys and values, which several heads may share."""

    n: int
    n_key_value: int


def head_counts(checkpoint: str | Path) -> Heads:
    """The heads of a checkpoint: a file of the project's GPT, or a folder with a config.json. UserError: not told there."""
    path = Path(checkpoint)
    try:
        if path.is_file():
            n = int(read_metadata(path)["n_heads"])
            return Heads(n, n)
        config = parse_json((path / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config", config)
        keys = ("num_attention_heads", "n_head", "num_heads")
        n = next(int(config[key]) for key in keys if config.get(key))
        return Heads(n, int(config.get("num_key_value_heads") or n))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise UserError(
            f"{path}: neither a config.json nor the file's metadata tells the number of attention heads; "
            "set weights.layers.heads: false"
        ) from error


def with_heads(matrices: Iterable[tuple[str, np.ndarray]], heads: Heads) -> Iterator[tuple[str, np.ndarray]]:
    """The matrices (n_out, n_in), each attention matrix followed by its heads, as views of it.

    `a.q_proj.weight` is followed by `a.q_proj.head-00.weight` and so on, a fused matrix by `a.qkv.query.head-00.weight`
    and so on. A matrix that the number of heads does not divide stays whole, with a RuntimeWarning.
    """
    for name, matrix in matrices:
        yield name, matrix
        try:
            parts = _parts(name, matrix, heads)
        except ValueError as error:
            warnings.warn(f"{name} is not split by head: {error}", RuntimeWarning, stacklevel=2)
            continue
        stem = name.removesuffix(".weight")
        for part, values in parts:
            yield f"{stem}.{part}.weight", values


def head_names(shapes: Mapping[str, tuple[int, int]], heads: Heads) -> list[str]:
    """The names that `with_heads` gives to matrices of those shapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        empty = ((name, np.broadcast_to(0.0, shape)) for name, shape in shapes.items())
        return [name for name, _ in with_heads(empty, heads)]


def _parts(name: str, matrix: np.ndarray, heads: Heads) -> list[tuple[str, np.ndarray]]:
    """What `with_heads` appends to the name, and the values, of each head; empty for what is no attention matrix."""
    if single := _SINGLE.search(name):
        return _numbered(matrix, heads.n if single[4] == "q" else heads.n_key_value)
    if _OUTPUT.search(name):
        return [(head, columns.T) for head, columns in _numbered(matrix.T, heads.n)]
    by_part = _FUSED_BY_PART.search(name)
    if not by_part and not _FUSED_BY_HEAD.search(name):
        return []
    if len(matrix) != 3 * matrix.shape[1]:
        raise ValueError(f"it has {len(matrix)} rows, not 3 x {matrix.shape[1]}: its heads share keys and values")
    if by_part:
        blocks = zip(_PARTS, _split(matrix, 3), strict=True)
        return [(f"{part}.{head}", rows) for part, block in blocks for head, rows in _numbered(block, heads.n)]
    return [
        (f"{part}.{head}", rows)
        for head, block in _numbered(matrix, heads.n)
        for part, rows in zip(_PARTS, _split(block, 3), strict=True)
    ]


def _numbered(matrix: np.ndarray, n: int) -> list[tuple[str, np.ndarray]]:
    return [(f"head-{number:02d}", rows) for number, rows in enumerate(_split(matrix, n))]


def _split(matrix: np.ndarray, n: int) -> list[np.ndarray]:
    if len(matrix) % n:
        raise ValueError(f"{len(matrix)} is not a multiple of {n}")
    return np.split(matrix, n)
