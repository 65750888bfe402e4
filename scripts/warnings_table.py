"""What a reader has to know before trusting a number: duplicated revisions, values that are NaN, dropped characters."""

import frames
import job
from toposcale import files, summary


def main(snakemake):
    given = snakemake.input
    found = [files.read_json(path) for path in given.duplicates]
    corpus = files.read_json(given.corpus) if given.corpus else {"dropped_characters": {}}
    table = summary.warnings(
        frames.read_features(given.features),
        frames.read(given.metrics),
        {fact["model"]: fact["duplicates"] for fact in found},
        corpus["dropped_characters"],
    )
    frames.write(snakemake, warnings=table)


if __name__ == "__main__":
    job.run(main, snakemake)
