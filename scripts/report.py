"""One page that shows the run: what was run, the answers, figures, tables, warnings, and how to make it again."""

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import yaml

import frames
import job
from toposcale import figures, files, tables
from toposcale.pages import made, report, rule_graph

PARTS = ("models", "summary", "metrics")


def main(snakemake):
    given, params = snakemake.input, snakemake.params
    captions = {Path(path).stem: Path(path).read_text() for path in given.captions}
    config = yaml.safe_load(Path(given.configuration).read_text())
    corpus = files.read_json(given.corpus) if given.corpus else None
    read = {name: frames.read(given[name]) for name in PARTS} | {
        "features": frames.read_features(given.features)
    }
    page = report.report(
        run=config["run"],
        config_text=Path(given.configuration).read_text(),
        **made.what_was_run(config, corpus, read["models"], read["features"]),
        **read,
        pictures=[picture(Path(path), captions) for path in given.figures],
        listings=[listing(path, captions) for path in given.listings],
        warnings=listing(given.warnings, captions),
        comparison=listing(given.comparison, captions),
        graph=graph(snakemake),
        runtimes=made.runtimes(params.logs, list(read["models"]["model"])),
        rerun=made.rerun(
            {Path(path).stem: tables.read_metadata(path) for path in given.made},
            run=config["run"],
            lock_name=Path(params.lock).name,
            lock_hash=hashlib.sha256(Path(params.lock).read_bytes()).hexdigest(),
        ),
    )
    with files.written(snakemake.output[0]) as path:
        path.write_text(page)


def picture(path, captions):
    entry = figures.FIGURES[path.stem]
    png = path.with_suffix(".png").read_bytes()
    return report.Picture(path.stem, entry.title, entry.category, path.read_text(), png, captions[path.stem])


def listing(path, captions):
    name = Path(path).stem
    return report.listing(name, frames.read(path), captions[name])


def graph(snakemake):
    """The rules of this run as a drawing; in words where Snakemake cannot tell them."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", snakemake.params.snakefile, "--nolock"]
    command += [
        "--configfile",
        snakemake.input.configuration,
        "--rerun-incomplete",
        "--rulegraph",
        "dot",
        "--",
        "all",
    ]
    # A worker that Snakemake started must not pass its own settings on to this reader of the run.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SNAKEMAKE_")}
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if told.returncode:
        logging.warning("%s", told.stderr)
        return f"The graph could not be drawn; {snakemake.log} says why."
    return rule_graph.svg(rule_graph.parse_dot(told.stdout))


if __name__ == "__main__":
    job.run(main, snakemake)
