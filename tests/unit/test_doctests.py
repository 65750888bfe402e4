"""The examples in the docstrings of the public modules run as printed."""

import doctest
import importlib

import pytest

from paths import ROOT

SOURCE = ROOT / "src"
PACKAGES = (
    "homology",
    "landscape",
    "monitor",
    "statistics",
    *(f"forecasting/{half}" for half in ("runs", "laws", "decision")),
)
FILES = [
    *(
        SOURCE / "toposcale" / name
        for name in ("__init__.py", "forecasting/__init__.py", "features/description.py", "figures/matrices.py")
    ),
    *(path for package in PACKAGES for path in sorted((SOURCE / "toposcale" / package).glob("*.py"))),
]
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module):
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    result = doctest.testmod(importlib.import_module(module), optionflags=flags)
    assert result.attempted
    assert not result.failed
