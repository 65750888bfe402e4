"""The unit tests of what changed since main; where nothing did that has a test, all that are quick: `make quick`.

A file's tests are `tests/unit/test_{name of the file}.py`. What would take more than a minute is left out, and named.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 60
"""Seconds of one core. Half of the minute of two cores goes into the imports of two processes, and into slower machines."""

# Seconds on one core; every other file takes less than 3.
SLOW = {
    **{"figures": 48, "configuration_fuzz": 36, "verdicts": 27},
    **{"docs": 18, "damaged_files": 18, "monitor": 17, "methods": 11},
    **{"description": 10, "prewhitening": 8, "questions": 7, "advise": 6, "schedules": 6},
    **{"examples": 6, "checks": 6, "doctests": 5, "import_order": 5, "beyond_the_variance": 5, "advice": 5},
    **{"decision_tables": 5, "configuration": 5, "corpus": 5, "forecasts": 5, "training": 4, "lightning": 4},
    **{"chinchilla": 4, "analysis": 4, "check_gpu": 4, "curvature": 4},
    **{"configuration_files": 3, "pages": 3, "slim_install": 20},
}


def git(*arguments: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> list[str]:
    """What differs from where this branch left main: committed, not committed, and new."""
    for main in ("origin/main", "main"):
        if base := git("merge-base", "HEAD", main):
            return [*git("diff", "--name-only", base[0]), *git("ls-files", "--others", "--exclude-standard")]
    return []


def tests_of(files: Iterable[str], there: Iterable[str]) -> list[str]:
    """The names in `there` of which a file is the code or the test, sorted."""
    names = {Path(file).stem.removeprefix("test_") for file in files if file.endswith(".py")}
    return sorted(names & set(there))


def within_budget(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names whose tests fit into a minute, the quickest first, and those that are left out."""
    fitting, left_out, seconds = [], [], 0
    for name in sorted(names, key=lambda name: (SLOW.get(name, 1), name)):
        seconds += SLOW.get(name, 1)
        (fitting if seconds <= BUDGET else left_out).append(name)
    return fitting, left_out


def main() -> int:
    there = [path.stem.removeprefix("test_") for path in (ROOT / "tests/unit").glob("test_*.py")]
    if changed := tests_of(changed_files(), there):
        chosen, left_out = within_budget(changed)
    else:
        chosen, left_out = sorted(set(there) - set(SLOW)), sorted(SLOW)
    if left_out:
        print(f"Left out, since they take too long: {', '.join(left_out)}", flush=True)
    if not chosen:
        return 0
    pytest = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "2", "--dist", "loadgroup"]
    files = [f"tests/unit/test_{name}.py" for name in chosen]
    return subprocess.run([*pytest, *files], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
