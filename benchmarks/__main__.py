"""`make bench [ONLY=name]`: every benchmark in this folder as one table.

A module `bench_*.py` has a function `rows()` that yields lines; each times its two sides in turn in the same run.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# One thread each, and before NumPy is loaded, which reads this only once.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
    os.environ[variable] = "1"

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def main(only: Sequence[str]) -> int:
    """Print a line as it is measured. 1 where a benchmark failed; a limit that is missed is not a failure."""
    unknown = [name for name in only if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 1
    failed = False
    print(f"{'benchmark':<66} {'ours':>11} {'against':>11} {'measured':>9} {'limit':>9}")
    for name in only or NAMES:
        try:
            for row in importlib.import_module(f"benchmarks.bench_{name}").rows():
                print(row.line(), flush=True)
        except Exception as error:  # the others are still measured
            failed = True
            print(f"failed: {name}: {type(error).__name__}: {error}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
