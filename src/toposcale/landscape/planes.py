"""What spans a loss surface, by name."""

from collections.abc import Iterable

RANDOM, TOP, NEGATIVE, MIXED = PLANES = ("random", "top", "negative", "mixed")
"""Random directions; eigenvectors of the Hessian: the leading, the most negative, and one from either end."""
_BY_INFORMATION = (NEGATIVE, MIXED, TOP, RANDOM)


def plane_name(kind: str, extent: float) -> str:
    """What stands in tables and in the names of a plane's features: `random_1`, `negative_0.3`."""
    return f"{kind}_{extent:g}"


def plane_label(name: str) -> str:
    """The same for people: "negative plane, extent 0.3"; a name that is no plane stays as it is, with spaces."""
    kind, _, extent = name.partition("_")
    return f"{kind} plane, extent {extent}" if kind in PLANES and extent else name.replace("_", " ")


def most_informative(names: Iterable[str]) -> str:
    """The plane that is shown where there is room for one: that of the most negative eigenvectors, the widest."""

    def rank(name: str) -> tuple[int, float, str]:
        kind, _, extent = name.partition("_")
        return (_BY_INFORMATION.index(kind), -float(extent or 0), name) if kind in PLANES else (len(PLANES), 0.0, name)

    return min(names, key=rank)
