"""What a reader has to know before trusting a number: duplicated revisions, values that are NaN, dropped characters."""

import json
from pathlib import Path

import frames
import job
from toposcale import summary


def main(snakemake):
    given = snakemake.input
    found = [json.loads(Path(path).read_text()) for path in given.duplicates]
    corpus = json.loads(Path(given.corpus).read_text()) if given.corpus else {"dropped_characters": {}}
    table = summary.warnings(
        frames.read_features(given.features),
        frames.read(given.metrics),
        {fact["model"]: fact["duplicates"] for fact in found},
        corpus["dropped_characters"],
    )
    frames.write(snakemake, warnings=table)


if __name__ == "__main__":
    job.run(main, snakemake)
