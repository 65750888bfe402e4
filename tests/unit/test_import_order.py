"""Imports go downwards: in the library from floor to floor, and from workflow, scripts and studies to the library."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from paths import ROOT

LIBRARY = ROOT / "src" / "toposcale"
STUDIES = ROOT / "studies"
# From the ground up. A package may import those before it.
FLOORS = [
    "io",
    "homology",
    "landscape",
    "statistics",
    "forecasting",
    "datasets",
    "training",
    "checkpoints",
    "features",
    "analysis",
    "reproduction",
    "figures",
    "pages",
]
# The monitor stands next to the analysis: it may import what lies below it, and only the pages import it.
MONITOR, BELOW_THE_MONITOR = "monitor", FLOORS[: FLOORS.index("analysis")]


def imported(path):
    """The full names of the modules that a file imports, at its head or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if _is_module(inner) else node.module)
    return found


def _is_module(name):
    path = LIBRARY.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def packages(path):
    """The packages of the library that a file imports."""
    parts = [name.split(".") for name in imported(path)]
    return {part[1] for part in parts if part[0] == "toposcale" and len(part) > 1} & {*FLOORS, MONITOR}


def modules(package):
    return sorted((LIBRARY / package).rglob("*.py"))


def test_every_package_has_its_floor():
    found = {path.name for path in LIBRARY.iterdir() if any(path.glob("*.py"))}
    assert found == {*FLOORS, MONITOR}
    assert {path.name for path in LIBRARY.glob("*.py")} <= {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("package", FLOORS)
def test_a_package_imports_those_below_it_only(package):
    allowed = {package, *FLOORS[: FLOORS.index(package)], *([MONITOR] if package == "pages" else [])}
    for path in modules(package):
        assert packages(path) <= allowed, path.relative_to(LIBRARY)


def test_the_monitor_stands_beside_the_analysis():
    for path in modules(MONITOR):
        assert packages(path) <= {MONITOR, *BELOW_THE_MONITOR}, path.relative_to(LIBRARY)


CURVE_HALF = "toposcale.forecasting"
BESIDE_IT = {"toposcale.io.errors", "toposcale.io.files", "toposcale.io.lazy_names"}
WHERE_READ = {"table_files.py": {"pyarrow"}, "event_files.py": {"tensorboard"}}


def test_the_curve_half_needs_numbers_and_files_alone():
    allowed = {"numpy", "scipy", "pandas", "matplotlib", *sys.stdlib_module_names}
    for path in modules("forecasting"):
        names = {name for name in imported(path) if not name.startswith(CURVE_HALF)}
        library = {name for name in names if name.startswith("toposcale")}
        # A command calls the public functions, also those of the bridge.
        doors = {"toposcale"} if "\ndef add_arguments(" in path.read_text() else set()
        assert library <= BESIDE_IT | doors, path.relative_to(LIBRARY)
        others = {name.split(".")[0] for name in names - library}
        assert others <= allowed | WHERE_READ.get(path.name, set()), path.relative_to(LIBRARY)


def test_the_curve_half_loads_no_topology_no_torch_and_no_tables():
    """Every public name of it, in a process of its own."""
    script = "import sys, toposcale.forecasting as f; [getattr(f, name) for name in f.__all__]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "toposcale.forecasting.decision.advise" in loaded
    assert not loaded & {"gudhi", "torch", "pyarrow", "toposcale.homology", "toposcale.checkpoints"}


def test_no_two_modules_import_each_other():
    names = {}
    for path in LIBRARY.rglob("*.py"):
        parts = ("toposcale", *path.relative_to(LIBRARY).with_suffix("").parts)
        names[".".join(parts).removesuffix(".__init__")] = path
    needs = {name: (imported(path) & set(names)) - {name} for name, path in names.items()}
    waiting = dict(needs)
    while waiting:
        ready = {name for name, needed in waiting.items() if not needed & set(waiting)}
        assert ready, f"a circle among {sorted(waiting)}"
        waiting = {name: needed for name, needed in waiting.items() if name not in ready}


def test_library_scripts_and_workflow_have_at_most_ten_floors():
    """The longest way down from package to package; studies and benchmarks are outside of the house."""
    needs = {"scripts": set(), "workflow": {"scripts"}}
    for package in [*FLOORS, MONITOR, *needs]:
        folder = ROOT / package if package in needs else LIBRARY / package
        names = [name.split(".") for path in folder.rglob("*.py") for name in imported(path)]
        inner = {parts[1] if parts[1:] else "toposcale" for parts in names if parts[0] == "toposcale"}
        needs[package] = needs.get(package, set()) | inner
    # What the library offers under its own name stands below those that ask for it there.
    needs["toposcale"] = packages(LIBRARY / "__init__.py")

    def floor(package):
        return 1 + max((floor(below) for below in needs.get(package, set()) - {package}), default=0)

    assert max(map(floor, needs)) <= 10


def test_the_library_knows_neither_workflow_nor_scripts():
    above = {path.stem for folder in ("scripts", "workflow") for path in (ROOT / folder).glob("*.py")}
    for path in LIBRARY.rglob("*.py"):
        first = {name.split(".")[0] for name in imported(path)}
        assert not first & (above | {"snakemake"}), path.relative_to(LIBRARY)


def test_studies_import_the_library_and_each_other_only():
    outside = {path.stem for folder in ("scripts", "workflow") for path in (ROOT / folder).glob("*.py")}
    outside |= {"scripts", "workflow", "benchmarks", "tests", "snakemake"}
    files = sorted(STUDIES.rglob("*.py"))
    assert files
    for path in files:
        above = {name.split(".")[0] for name in imported(path)} & outside
        assert above <= (PLAN_OF_A_CONFIGURATION if path.parent.name in TRAINING_STUDIES else set()), path.relative_to(
            ROOT
        )


def test_what_users_run_does_not_know_the_studies():
    for folder in ("src", "scripts", "workflow", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            assert "studies" not in {name.split(".")[0] for name in imported(path)}, path.relative_to(ROOT)
    for path in [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]:
        assert "studies" not in path.read_text(), path.relative_to(ROOT)


def test_scripts_do_not_know_the_workflow():
    above = {path.stem for path in (ROOT / "workflow").glob("*.py")} | {"snakemake"}
    for path in (ROOT / "scripts").glob("*.py"):
        assert not {name.split(".")[0] for name in imported(path)} & above, path.name


TRAINING_STUDIES = {"controls", "study4"}
"""Studies that train their runs without a job each: they ask the workflow which runs their configurations plan."""
PLAN_OF_A_CONFIGURATION = {"config_reading", "plan"}

# TensorBoard's files are read where the user has it; its absence is told in one line.
_OPTIONAL = {"tensorboard"}
_MODULE_OF = {"scikit-learn": "sklearn"}


def test_what_the_library_imports_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = project["dependencies"] + [name for names in project["optional-dependencies"].values() for name in names]
    packages = {re.match(r"[\w.-]+", line)[0].lower() for line in stated}
    declared = {_MODULE_OF.get(name, name).replace("-", "_") for name in packages}
    used = {name.split(".")[0] for path in LIBRARY.rglob("*.py") for name in imported(path)}
    assert used - declared - set(sys.stdlib_module_names) <= {"toposcale"} | _OPTIONAL


@pytest.mark.parametrize("module", ["features.registry", "analysis.ridge", "forecasting.decision.advise"])
def test_registry_has_every_feature_without_homology(module):
    """In a process of its own, as a job of the workflow is."""
    asks = "from toposcale.features.registry import group_of; print(group_of('frobenius_norm'))"
    script = f"import sys, toposcale.{module}; {asks}; print('toposcale.homology' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["norm", "False"]


HEAVY = {"torch", "transformers", "pandas", "matplotlib", "scipy.stats", "scipy.spatial", "scipy.optimize", "persim"}


@pytest.mark.parametrize(
    ("script", "needed"),
    [
        ("gather", set()),
        ("diagram_distances", set()),
        ("weight_features", set()),
        ("analyse", {"pandas"}),
        ("figures", {"pandas", "matplotlib"}),
        ("train", {"torch"}),
        ("training_path", {"torch"}),
        ("explorer", {"pandas", "matplotlib"}),
    ],
)
def test_a_job_imports_what_it_needs_and_nothing_heavy_beside(script, needed):
    """A job of a small model takes less time than the imports of any of these."""
    path = [str(ROOT / "scripts"), str(ROOT / "src")]
    code = f"import sys; sys.path[:0] = {path}; import {script}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == needed


def test_advise_on_numbers_imports_no_pandas():
    """They would take a third of the time."""
    curve, facts = ROOT / "examples" / "losses.csv", ["--n-parameters=25e6", "--tokens-per-step=5e5", "--steps=24000"]
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
sys.argv = ["toposcale", "advise", {str(curve)!r}, *{facts}]
from toposcale.__main__ import main
assert not main()
unused = {{"pandas", "matplotlib", "scipy.stats", "torch", "pyarrow.compute", "pyarrow.parquet", "safetensors"}}
print(unused & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
