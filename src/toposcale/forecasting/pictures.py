"""Pictures as files: SVG, PNG or PDF, the same bytes for the same figure."""

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from toposcale.io.errors import UserError, needs_extra
from toposcale.io.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_WITHOUT_DATE = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}
"""Metadata by format in which no time and no version stands."""


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the format of a picture by its suffix; raise UserError if it is another one, or without matplotlib."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _WITHOUT_DATE:
        raise UserError(f"{path}: the suffix of a picture must be .{', .'.join(_WITHOUT_DATE)}")
    with needs_extra("plot", "a picture"):
        import matplotlib  # noqa: F401
    return kind


def rendered(figure: "Figure", kind: str) -> bytes:
    """Return a figure in one of the formats; the same bytes for the same figure."""
    import matplotlib

    with BytesIO() as file, matplotlib.rc_context({"svg.hashsalt": "toposcale", "svg.fonttype": "path"}):
        figure.savefig(file, format=kind, dpi=144, metadata=_WITHOUT_DATE[kind])
        return file.getvalue()


def write(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure atomically, in the format of the suffix."""
    picture = rendered(figure, kind_of(path))
    with atomic_write(path) as temporary:
        temporary.write_bytes(picture)
