"""docs/images/rulegraph.svg: the rules of the workflow and what each reads, as a picture that stands alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STYLE = """
text { font: 13px sans-serif; fill: #1b1b1b }
rect { fill: #eef2f7; stroke: #5b7083 }
path { fill: none; stroke: #9aa8b5 }
"""


def rule_graph(config: str = "config/config.yaml") -> str:
    """The graph of the rules of a configuration in DOT, told by Snakemake in a folder without results."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--rulegraph",
        "dot",
    ]
    command += ["--configfile", str(ROOT / config), "--forceall", "--quiet", "all"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def picture() -> str:
    """The SVG of the default run."""
    from toposcale.pages.rule_graph import parse_dot, svg

    drawn = str(svg(parse_dot(rule_graph())))
    head, rest = drawn.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>{rest}\n'


if __name__ == "__main__":
    sys.stdout.write(picture())
