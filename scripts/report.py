"""Write the report of a run: configuration, verdicts, figures, tables, warnings, and how to reproduce it."""

import hashlib
import subprocess
from importlib import metadata
from pathlib import Path

import yaml

import _job
import _tables
from toposcale import checkpoints, figures
from toposcale.features import diagram_distances, ripser_check, weights
from toposcale.figures import style
from toposcale.io import files, schemas, tables
from toposcale.pages import provenance, report


def uncommitted(home):
    """Return the uncommitted changes of the workflow as a patch for `git apply`; empty if there are none."""
    command = ["git", "-C", str(home), "--git-dir=.git", "diff", "HEAD", "--binary", "--no-ext-diff"]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""  # no git, or not a clone


def picture(path):
    png = path.with_suffix(".png").read_bytes()
    return report.Picture(path.stem, figures.FIGURES[path.stem], path.read_text(), png, style.missing_reason(path))


def listing(path):
    return report.listing(Path(path).stem, _tables.read(path))


def agreement(checkpoint, diagrams, settings):
    """Compare diagrams of the weights of a checkpoint, the last one in the file of diagrams, with those of ripser."""
    table = tables.read(schemas.TABLES["diagrams"], diagrams)
    if not len(table):  # the checkpoint could not be measured
        return ""
    *_, (step, rows) = tables.by_step(table)
    keys = ("max_points", "max_dimension", "seed")
    clouds = ripser_check.check(
        checkpoints.Checkpoint(checkpoints.locate(checkpoint)).matrices(),
        diagram_distances.by_layer_and_dimension(rows),
        weights.WeightSettings(**{key: settings[key] for key in keys}),
    )
    return provenance.agreement(clouds, rows["model"][0].as_py(), step, f"ripser {metadata.version('ripser')}")


@_job.script
def main(snakemake):
    inputs, params = snakemake.input, snakemake.params
    config_text = Path(inputs.configuration).read_text()
    config = yaml.safe_load(config_text)
    corpus = files.read_json(inputs.corpus) if inputs.corpus else None
    frames = _tables.read_inputs(snakemake, ("models", "summary", "metrics", "features", "training"))
    table_files = {Path(path).stem: path for path in inputs.tables}
    patch = uncommitted(Path(params.lock).parent)
    with files.atomic_write(snakemake.output.changes) as path:
        path.write_bytes(patch)
    page = report.report(
        run=config["run"],
        config_text=config_text,
        **provenance.what_was_run(config, corpus, frames["models"], frames["features"]),
        **frames,
        pictures=[picture(Path(path)) for path in inputs.figures],
        listings=[listing(table_files[name]) for name in report.LISTED if name in table_files],
        warnings=listing(inputs.warnings),
        advice=_tables.read(table_files["advice"]),
        claims=_tables.read(table_files["claims"]) if "claims" in table_files else None,
        comparison=listing(table_files["comparison"]) if "comparison" in table_files else None,
        agreement=agreement(*compared, config["weights"]) if (compared := inputs.compared_with_ripser) else "",
        runtimes=provenance.runtimes(params.logs, list(frames["models"]["model"])),
        rerun=provenance.rerun(
            {name: tables.read_metadata(path) for name, path in table_files.items()},
            run=config["run"],
            patch=snakemake.output.changes if patch else "",
            lock_name=Path(params.lock).name,
            lock_hash=hashlib.sha256(Path(params.lock).read_bytes()).hexdigest(),
        ),
    )
    files.write_text(snakemake.output.page, page)
