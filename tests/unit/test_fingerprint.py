"""A fingerprint follows the code that a script can reach, and nothing else."""

import pytest

import fingerprint


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
    monkeypatch.setattr(fingerprint, "LIBRARY", tmp_path / "src")
    monkeypatch.setattr(fingerprint, "SCRIPTS", tmp_path / "scripts")

    def current():
        fingerprint.fingerprint.cache_clear()
        fingerprint._parsed.cache_clear()
        fingerprint._files.cache_clear()
        return fingerprint.fingerprint("s.py")

    return tmp_path, current


@pytest.mark.parametrize(
    ("file", "text", "changes"),
    [
        ("src/toposcale/part/b.py", "def f():\n    return 2\n", True),
        ("src/toposcale/part/b.py", "# why\ndef f():\n\n    return 1\n", False),
        ("src/toposcale/apart.py", "x = 2\n", False),
        ("src/toposcale/part/__init__.py", "y = 1\n", True),
    ],
)
def test_what_changes_a_fingerprint(project, file, text, changes):
    root, current = project
    before = current()
    (root / file).write_text(text)
    assert (current() != before) == changes


def test_the_real_scripts_reach_the_library():
    assert fingerprint.fingerprint("weight_features.py") != fingerprint.fingerprint("gather.py")
