"""A fingerprint follows the code that a script can reach, and nothing else."""

import ast
import re
from types import SimpleNamespace

import pytest

import digests
from parts import ANALYSES, RunTables
from paths import ROOT


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "src/toposcale/part").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    files = {
        "scripts/s.py": "from toposcale import a\n",
        "src/toposcale/__init__.py": "",
        "src/toposcale/a.py": "from toposcale.part.b import f\n",
        "src/toposcale/part/__init__.py": "",
        "src/toposcale/part/b.py": 'def f():\n    """Text."""\n    return 1\n',
        "src/toposcale/apart.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(digests, "LIBRARY", tmp_path / "src")
    monkeypatch.setattr(digests, "SCRIPTS", tmp_path / "scripts")

    def forget():
        for function in (digests.fingerprint, digests._parsed, digests._files):
            function.cache_clear()

    def current():
        forget()
        return digests.fingerprint("s.py")

    forget()
    yield tmp_path, current
    forget()


def test_fingerprint_ignores_what_is_imported_for_types(project):
    root, current = project
    module, typed = root / "src/toposcale/part/b.py", root / "src/toposcale/apart.py"
    code = "from typing import TYPE_CHECKING\n\n{}from toposcale import apart\n\n\ndef f():\n    return apart.x\n"
    for head, changes in (("if TYPE_CHECKING:\n    ", False), ("", True)):
        module.write_text(code.format(head))
        before = current()
        typed.write_text(f"x = {len(head) + 2}\n")
        assert (current() != before) == changes


@pytest.mark.parametrize(
    ("file", "text", "changes"),
    [
        ("src/toposcale/part/b.py", "def f():\n    return 2\n", True),
        ("src/toposcale/part/b.py", "# why\ndef f():\n\n    return 1\n", False),
        ("src/toposcale/part/b.py", 'def f():\n    """Text."""\n    return 1\n\n\nx: int = 3\n', True),
        ("src/toposcale/apart.py", "x = 2\n", False),
        # What a package defines, and nobody here uses.
        ("src/toposcale/part/__init__.py", "y = 1\n", False),
        ("src/toposcale/__init__.py", '__version__ = "2"\n', False),
    ],
)
def test_what_changes_a_fingerprint(project, file, text, changes):
    root, current = project
    before = current()
    (root / file).write_text(text)
    assert (current() != before) == changes


@pytest.mark.parametrize(
    ("code", "documented"),
    [
        ("X = 1", 'X = 1\n"""Why."""'),
        (
            "class A:\n    x: int = 1\n    y = 2",
            'class A:\n    x: int = 1\n    """Why."""\n    y = 2\n    """And why."""',
        ),
        ("class A(E): pass", 'class A(E):\n    """What."""'),
        ("def f(): pass", 'def f():\n    """What."""'),
    ],
)
def test_fingerprint_leaves_out_every_docstring(project, code, documented):
    root, current = project
    digests = []
    for text in (code, documented, documented.replace('"""', '"""Again: ', 1), code.replace("1", "3") + "\nZ = 0"):
        (root / "src/toposcale/part/b.py").write_text(text + "\n")
        digests.append(current())
    assert digests[0] == digests[1] == digests[2] != digests[3]


def test_fingerprint_does_not_depend_on_the_version_of_python(project):
    """Python 3.12 added `type_params` to the tree, and 3.13 left empty lists out of what `ast.dump` writes."""
    root, current = project
    (root / "src/toposcale/part/b.py").write_text(
        "@d\nclass A(B, k=1):\n    def f(self, *a, x: int = -1, **k) -> str:\n        return f'{x!r:>{a[0]}} {k}'\n"
        "async def g():\n    match x:\n        case {'a': [1, *_]} | None if y: del z\n    return lambda: (yield)\n"
    )
    assert current() == "5e878c913ed225be"


PACKAGE = {
    "src/toposcale/part/__init__.py": (
        "from toposcale.part.b import f\nfrom toposcale.part.c import g, h\n\ndef own():\n    return h()\n"
    ),
    "src/toposcale/part/c.py": "from toposcale.part.d import g\n\ndef h(): ...\n",
    "src/toposcale/part/d.py": "def g(): ...\n",
}


@pytest.mark.parametrize(
    ("script", "modules"),
    [
        ("from toposcale.part import f\nf()\n", ["part/b"]),
        ("from toposcale import part\npart.f()\n", ["part/b"]),
        ("from toposcale import part\npart.g().f.own\n", ["part/c", "part/d"]),
        ("from toposcale import part as p\np.own()\n", ["part/__init__", "part/c", "part/d"]),
        ("from toposcale.part import d\nd.g()\n", ["part/d"]),
        ("import toposcale.part.d\n", ["part/d"]),
        # A name that is looked up while it runs may be any.
        ("from toposcale.part import other\n", ["part/__init__", "part/b", "part/c", "part/d"]),
        ("from toposcale import part\nprint(part)\n", ["part/__init__", "part/b", "part/c", "part/d"]),
    ],
)
def test_a_name_of_a_package_leads_to_the_module_that_it_is_from(project, script, modules):
    root, _ = project
    for name, text in {**PACKAGE, "scripts/t.py": script}.items():
        (root / name).write_text(text)
    found = digests.reached("t.py") - {root / "scripts/t.py"}
    assert sorted(path.relative_to(root / "src/toposcale").with_suffix("").as_posix() for path in found) == modules


@pytest.mark.parametrize("package", sorted(digests.LIBRARY.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_to_import_a_package_does_nothing(package):
    """So its code counts where a name that it defines is used, and nowhere else."""
    passive = ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.FunctionDef
    for node in ast.parse(package.read_text()).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        assert isinstance(node, passive) or is_text or is_for_types, ast.unparse(node)


def test_the_real_scripts_reach_the_library():
    assert digests.fingerprint("weight_features.py") != digests.fingerprint("gather.py")


def test_every_rule_is_run_again_when_the_code_of_its_own_script_changes():
    """But what no library code makes."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    blocks = re.split(r"^ *(?=(?:use )?rule\b)", text, flags=re.MULTILINE)[1:]
    scripts: dict[str, list[str]] = {}
    for block in blocks:
        inherited, name = re.match(r"(?:use rule (\w+) as |rule ?)(\w*)", block).groups()
        scripts[name] = re.findall(r"scripts/(\w+\.py)", block) or scripts.get(inherited, [])
        if scripts[name] and name not in ("resolved_configuration", "compared"):
            analyses = re.findall(r'TABLES\.params\(\s*"(\w+)"', block)  # with the code of analyse.py: the next test
            assert re.findall(r'"(\w+\.py)"', block) == (scripts[name] if not analyses else []), block
            # rule train has a name for each list of checkpoints
            assert re.findall(r'DIGESTS\.params\(\s*"(\w+)"', block) + analyses in ([name], []), block
            assert not analyses or scripts[name] == ["analyse.py"]
    assert len([name for name in scripts if scripts[name]]) > 30


def test_params_of_an_analysis_have_the_code_of_its_script():
    read = []
    reader = SimpleNamespace(params=lambda name, *code: read.extend(code) or {})
    RunTables.params(SimpleNamespace(settings=lambda name: {}), "correlations", reader)
    assert read == ["analyse.py", ANALYSES["correlations"].module]
