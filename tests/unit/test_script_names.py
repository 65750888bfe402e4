"""The scripts of the jobs, which no type checker reads: what they use of modules is there."""

import ast
import importlib
from types import ModuleType

import pytest

from paths import ROOT


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "scripts").glob("*.py")))
def test_the_names_that_a_script_reads_of_a_module_exist(name):
    script = importlib.import_module(name)
    tree = ast.parse((ROOT / "scripts" / f"{name}.py").read_text())
    attributes = [
        node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    for node in attributes:
        module = getattr(script, node.value.id, None)
        assert not isinstance(module, ModuleType) or hasattr(module, node.attr), f"{node.value.id}.{node.attr}"
