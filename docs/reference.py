"""Write what the documentation takes from code and committed tables: `make reference`.

Whole pages follow from registries; in the other pages, what a command or a program prints stands below it as it is printed.

`python docs/reference.py results/default` takes the answers to the claims and the pictures of the gallery from this run.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from PIL import Image

from toposcale.figures import FIGURES
from toposcale.figures.style import missing_reason
from toposcale.io.files import write_text
from toposcale.io.schemas import TABLES
from toposcale.reproduction.claims import CLAIMS, ClaimAnswer

DOCS = Path(__file__).parent
ROOT = DOCS.parent
CLAIMS_OF_DEFAULT, CLAIMS_OF_SEEDS = ROOT / "studies/claims.csv", ROOT / "studies/paper_seeds/tables/claims.csv"
"""Answers to the claims of the default run, and in how many seeds of the paper's experiment there is each answer."""


def answers_of(folder: Path) -> pd.DataFrame:
    """Return the answers of a run to the claims, and the reasons for "not tested"."""
    rows = pd.read_csv(folder / "tables/claims.csv", keep_default_na=False)
    return rows.assign(source=rows["source"].str.replace(" ", "_"))[["source", "claim", "answer", "reason"]]


def copy_pictures(figures: Path) -> None:
    """Write the pictures of the gallery from the figures of a run, small enough for a page; none where data are missing."""
    for path in sorted(figures.glob("*.png")):
        target = DOCS / "images/gallery" / path.name
        if missing_reason(path.with_suffix(".svg")):
            target.unlink(missing_ok=True)
            continue
        picture = Image.open(path).convert("RGB")
        picture.thumbnail((900, picture.height), Image.Resampling.LANCZOS)
        # Not the median cut, which gives the colours of thin lines away.
        few_colours = picture.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few_colours.save(target, optimize=True)


def claims() -> str:
    """Return docs/claims.md: every claim, its test, and the answers of the default run and of the eight seeds."""
    of_default, of_seeds = (
        pd.read_csv(path, keep_default_na=False).assign(source=lambda rows: rows["source"].str.replace(" ", "_"))
        for path in (CLAIMS_OF_DEFAULT, CLAIMS_OF_SEEDS)
    )
    default = {(row.source, row.claim): _answer({row.answer: 1}, 1, row.reason) for row in of_default.itertuples()}
    counted = of_seeds.set_index(["source", "claim"])
    n_seeds = int(counted[list(ClaimAnswer)].sum(axis=1).iloc[0])
    seeds = {key: _answer(row, n_seeds, row["reason"]) for key, row in counted.iterrows()}
    lines = []
    for source in dict.fromkeys(claim.source for claim in CLAIMS):
        lines += [f"## {source.replace('_', ' ').capitalize()}", ""]
        lines += ["| claim | test | default run | the paper's experiment |", "| --- | --- | --- | --- |"]
        for claim in (one for one in CLAIMS if one.source == source):
            key = (source, claim.name)
            cells = (claim.test, default[key], seeds.get(key, "not tested: not measured in these runs"))
            lines.append(f"| **{claim.name}**: {claim.statement} | " + " | ".join(map(_cell, cells)) + " |")
        lines.append("")
    return _page(
        "The claims of the four sources",
        "`src/toposcale/reproduction/claims.py`, `studies/claims.csv` and `studies/paper_seeds/tables/claims.csv`",
        "What the research plan, the reproduced paper, the embedding report and the landscape review claim, the test that "
        "decides each claim, and two answers: that of the default run (`make run`, 400 steps), and in how many of eight "
        "seeds the paper's experiment has it (5,000 steps on WikiText-2, from the committed tables of "
        "[the seeds](../studies/paper_seeds/README.md)). *Opposite*: the contrary claim passes the same test. Every run "
        "that names sources under `reproduces` writes the same table, with the numbers behind each answer, as "
        "`tables/claims`.",
        lines[:-1],
    )


def tables() -> str:
    """Return docs/tables.md: every table, what a row is, its columns with type and meaning."""
    lines = []
    for name, described in TABLES.items():
        lines += [f"## {name}", "", f"{described.row_meaning.capitalize()}.", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        for column in described.columns:
            bold = "**" if column.name in described.key else ""
            lines.append(f"| {bold}`{column.name}`{bold} | {column.type} | {column.meaning} |")
        lines.append("")
    return _page(
        "Tables",
        "`src/toposcale/io/schemas.csv`",
        "Tables lie in `results/{run}/tables/` as Parquet, the analyses as CSV too, the others on request (`make csv`). "
        "Columns in **bold** identify a row.",
        lines[:-1],
    )


def gallery() -> str:
    """Return docs/gallery.md: every figure, what it shows, and the command that draws it."""
    lines: list[str] = []
    for subject in dict.fromkeys(figure.subject for figure in FIGURES.values()):
        lines += [f"## {subject}", ""]
        for name, figure in FIGURES.items():
            if figure.subject == subject:
                command = f".venv/bin/snakemake --cores 1 results/default/figures/{name}.svg"
                tables = ", ".join(f"`{table}`" for table in figure.tables)
                lines += [f"### {figure.title}", "", *_picture(name, figure.title), figure.full_caption(2), ""]
                lines += [f"Drawn from the tables {tables} by `{command}`.", ""]
    return _page(
        "Gallery",
        "`src/toposcale/figures/gallery.py`",
        "The figures of a run. `make run` writes each as SVG and PNG in `results/default/figures`; a run without the "
        "data of a figure leaves it out. The functions in `toposcale.figures` draw them from tables of your own. "
        "`make docs` after a `make run` puts the report and the explorer of that run on the site too, linked at the "
        "end of this page.",
        lines[:-1],
    )


def _picture(name: str, title: str) -> list[str]:
    """Return the lines that show the picture of a figure, or say that there is none."""
    path = f"images/gallery/{name}.png"
    return [f"![{title}]({path})" if (DOCS / path).exists() else "*The default run has no data for it.*", ""]


def _answer(counts: Mapping[str, int], n_runs: int, reason: str) -> str:
    """Return the answers of runs, with their number where they differ, and the reason why it was not tested."""
    told = [answer for answer in ClaimAnswer if counts.get(answer)]
    words = [answer if counts[answer] == n_runs else f"{answer} in {counts[answer]} of {n_runs}" for answer in told]
    return "; ".join(words) + (f": {reason}" if told == [ClaimAnswer.NOT_TESTED] else "")


def _cell(text: str) -> str:
    """Return a text as the cell of a table."""
    return text.replace("|", "\\|")


def _page(title: str, source: str, text: str, lines: list[str]) -> str:
    return "\n".join([f"# {title}", "", f"Written by `make reference` from {source}.", "", text, "", *lines, ""])


CONSOLE = re.compile(r"(?<=^```console\n)\$ toposcale (.*?[^\\])\n.*?(?=^```$)", re.DOTALL | re.MULTILINE)
"""A command and what it prints."""
PROGRAM = re.compile(r"(^```python\n(?P<code>(?:(?!^```).)*)^```\n\n```text\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
"""A program and, right below it, what it prints."""
WITH_OUTPUT = [ROOT / "README.md", DOCS / "forecasting.md", DOCS / "tutorials/decision.md"]
"""Pages with commands and programs whose output is written here."""


def with_outputs(page: str) -> str:
    """Return a page with what its commands and programs print, run in the folder of the project."""
    page = CONSOLE.sub(lambda found: f"$ toposcale {found[1]}\n" + _printed(*_arguments(found[1])), page)
    return PROGRAM.sub(lambda found: found[1] + _printed("-c", found["code"]), page)


def _arguments(command: str) -> list[str]:
    """Return the arguments of Python for a command of toposcale, which may stand on several lines."""
    return ["-m", "toposcale", *shlex.split(command.replace("\\\n", " "))]


def _printed(*arguments: str) -> str:
    """Return what Python prints, lines of at most 125 characters."""
    environment = os.environ | {"COLUMNS": "125", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout


PAGES = {"claims.md": claims, "gallery.md": gallery, "tables.md": tables}


if __name__ == "__main__":
    for folder in sys.argv[1:2]:
        answers_of(Path(folder)).to_csv(CLAIMS_OF_DEFAULT, index=False, lineterminator="\n")
        copy_pictures(Path(folder) / "figures")
    for name, text in PAGES.items():
        write_text(DOCS / name, text())
    for path in WITH_OUTPUT:
        write_text(path, with_outputs(path.read_text(encoding="utf-8")))
