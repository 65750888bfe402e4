"""Faults that a careless change could make, and the tests that find them: `make planted-faults` plants each one in a copy.

Minutes, so it is not part of `make test`; that the table fits the code is tested there (tests/unit/test_planted_faults.py).
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/toposcale"
PATHS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["pythonpath"]


class Fault(NamedTuple):
    """A module of the package, what stands there once, what is planted in its place, and the tests that must fail."""

    module: str
    right: str
    wrong: str
    tests: str

    @property
    def name(self) -> str:
        """What is planted, in a line."""
        return f"{self.module}: {self.wrong}"


FAULTS = [
    Fault("homology/neural_persistence.py", "1.0 - tree_weights / scale", "tree_weights / scale", "neural_persistence"),
    Fault("homology/rips.py", "np.minimum(reach, distances[nearest], out=reach)", "reach = distances[nearest]", "rips"),
    Fault("homology/rips.py", "np.fill_diagonal(distances, math.inf)", "pass", "rips"),
    Fault("homology/diagrams.py", '"mean": total / count', '"mean": total / (count + 1)', "diagrams"),
    Fault("landscape/merge_tree.py", "lower, upper = np.sort", "upper, lower = np.sort", "merge_tree"),
    Fault("statistics/multiple_testing.py", "np.maximum.accumulate(p[order]", "(p[order]", "multiple_testing"),
    Fault("statistics/multiple_testing.py", "np.arange(len(p), 0, -1)", "len(p)", "multiple_testing"),
    Fault("statistics/permutations.py", "distance[0] - 1e-9", "distance[0] + 1e-9", "permutations"),
    Fault(
        "statistics/freedman_lane.py",
        "orthogonal_to(features[:, runs], design)",
        "features[:, runs], 0",
        "freedman_lane",
    ),
    Fault("statistics/prewhitening.py", "range(start + 1):\n        if", "range(1):\n        if", "prewhitening"),
    Fault(
        "statistics/prewhitening.py", "np.sqrt(self.degrees_of_freedom / self.products.shape[2])", "1.0", "prewhitening"
    ),
    Fault("laws/calibration.py", "CONFIDENCE * (n + 1)", "CONFIDENCE * n", "calibration"),
    Fault("laws/calibration.py", "calibrate(np.delete(scores, place))", "calibrate(scores)", "calibration"),
    Fault("laws/joint.py", "(covariance + np.outer", "(np.outer", "random_laws"),
    Fault("laws/joint.py", "evidence - evidence.max()", "0 * evidence", "joint"),
    Fault("decision/reasons.py", "if best.probability < CONFIDENT:", "if False:", "checks"),
    Fault("runs/checks.py", "if highest > HIGHEST_LOSS:", "if False:", "checks"),
    Fault(
        "decision/expected_regret.py", "draws - draws.min(axis=1, keepdims=True)", "draws - losses.min()", "decision"
    ),
    Fault("analysis/regret.py", "outcome.loss - outcomes[best].loss", "outcome.loss", "regret"),
    Fault("homology/sampling.py", "rng.permutation(matrix.reshape(-1))", "matrix", "sampling"),
    Fault("checkpoints/matrices.py", "weights_only=True", "weights_only=False", "checkpoints"),
]


def found(fault: Fault) -> bool:
    """Whether its tests fail on a copy of the package in which it is planted."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "toposcale"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        module = copy / fault.module
        module.write_text(module.read_text().replace(fault.right, fault.wrong))
        tests = ROOT / f"tests/unit/test_{fault.tests}.py"
        paths = [folder if path == "src" else path for path in PATHS]
        command = [sys.executable, "-m", "pytest", "--quiet", "-x", "-o", f"pythonpath={shlex.join(paths)}", str(tests)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode == 1 and "failed" in done.stdout


def main() -> int:
    """Plant every fault; 1 where one is not found."""
    missed = []
    for fault in FAULTS:
        if not (is_found := found(fault)):
            missed.append(fault.name)
        print(f"{'found' if is_found else 'NOT FOUND'} by test_{fault.tests}: {fault.name!r}", flush=True)
    print(f"{len(FAULTS) - len(missed)} of {len(FAULTS)} planted faults are found")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
