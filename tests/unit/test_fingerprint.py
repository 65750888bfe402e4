"""A fingerprint follows the code that a script can reach, and nothing else."""

import re

import pytest

import fingerprint
import inputs
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


def test_every_rule_is_run_again_when_the_code_of_its_own_script_changes():
    """But the advice, which is computed whenever it is asked for, and the configuration, which no library code writes."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    rules = re.split(r"^ *rule\b", text, flags=re.MULTILINE)[1:]
    scripts = [re.findall(r'scripts/(\w+\.py)"', rule) for rule in rules]
    by_kind = {f'INPUTS.params("{kind}")': f'code_of("{script}"' for kind, script in inputs.SCRIPTS.items()}
    rules = [re.sub(r"INPUTS\.params\(\S+\)", lambda found: by_kind[found[0]], rule) for rule in rules]
    watched = [re.findall(r'code_of\(\s*"(\w+\.py)"', rule) for rule in rules]
    without = (["advice.py"], ["resolved_configuration.py"])
    assert len(rules) > 20
    assert [one for one in scripts if one and one not in without] == [one for one in watched if one]
