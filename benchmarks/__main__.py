"""`make bench [ONLY=name]`: every benchmark in this folder as one table.

A module `bench_*.py` has a function `rows()` that yields `Row`s; each times its two sides in turn in the same run.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))


def main() -> None:
    """Print a line a benchmark as it is measured; the verdict compares the measured value with the limit."""
    only = sys.argv[1:]
    names = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    print(f"{'benchmark':<58} {'ours':>10} {'against':>10} {'measured':>9} {'limit':>9}")
    for name in names:
        if only and not any(part in name for part in only):
            continue
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            print(row.line(), flush=True)


if __name__ == "__main__":
    main()
