"""Names of the planes of loss surfaces in tables, and their kinds and extents."""

from collections.abc import Iterable
from typing import NamedTuple, Self

RANDOM = "random"  # random directions
TOP = "top"  # leading eigenvectors of the Hessian
NEGATIVE = "negative"  # its most negative eigenvectors
MIXED = "mixed"  # eigenvectors of either end
PLANES = (RANDOM, TOP, NEGATIVE, MIXED)
SUBSPACES = ("subspace", "quadratic")
"""A loss in a subspace of the Hessian and its quadratic model there, before the dimension in the names of features."""
_BY_INFORMATION = (NEGATIVE, MIXED, TOP, RANDOM)


class Plane(NamedTuple):
    """Kind and extent of a plane; the dimension of a subspace; "" for what has none."""

    kind: str
    extent: str = ""

    @classmethod
    def of_name(cls, name: str) -> Self:
        """Return the plane of a name in tables: "negative_0.3"."""
        kind, _, extent = name.partition("_")
        return cls(kind, extent)


def plane_label(name: str) -> str:
    """Return a plane's label, "negative plane, extent 0.3"; another name is kept, with spaces."""
    plane = Plane.of_name(name)
    is_plane = plane.kind in PLANES and plane.extent
    return f"{plane.kind} plane, extent {plane.extent}" if is_plane else name.replace("_", " ")


def most_informative(names: Iterable[str]) -> str:
    """Return the plane to show if there is room for one: the widest of the most negative eigenvectors, if any."""

    def rank(name: str) -> tuple[int, float, str]:
        kind, extent = Plane.of_name(name)
        return (_BY_INFORMATION.index(kind), -float(extent or 0), name) if kind in PLANES else (len(PLANES), 0.0, name)

    return min(names, key=rank)
