"""CPU seconds of the jobs of two runs by rule, and their ratio: two states of the project in one sitting.

python -m benchmarks.run_costs BEFORE/results/default AFTER/results/default
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path


def seconds_by_rule(run: Path) -> dict[str, list[float]]:
    """The CPU seconds of each job, by rule, as `scripts/_job.py` notes them next to the logs."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for path in sorted((run / "logs").rglob("*.cost.json")):
        rule = path.relative_to(run / "logs").parts[0].removesuffix(".cost.json")
        seconds[rule].append(json.loads(path.read_text())["cpu_seconds"])
    return seconds


def main(before: Path, after: Path) -> None:
    """Print a line a rule, the most expensive first, and the sum."""
    sides = [seconds_by_rule(run) for run in (before, after)]
    for side in sides:
        side["sum"] = [cost for costs in side.values() for cost in costs]
    for rule in sorted({*sides[0], *sides[1]}, key=lambda rule: -sum(sides[0].get(rule, [0.0]))):
        counts, (first, second) = (
            [len(side.get(rule, [])) for side in sides],
            [sum(side.get(rule, [])) for side in sides],
        )
        ratio = f"{second / first:6.2f}" if first else ""
        print(f"{rule:<28}{counts[0]:>5} jobs{first:>8.1f} s{counts[1]:>5} jobs{second:>8.1f} s{ratio}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
