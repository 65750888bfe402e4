"""What a reader has to know before trusting a number: duplicated revisions, values that are NaN, dropped characters."""

import _job
import _tables
from toposcale.analysis import summary
from toposcale.io import files


def main(snakemake):
    given = snakemake.input
    found = [files.read_json(path) for path in given.duplicates]
    corpus = files.read_json(given.corpus) if given.corpus else {"dropped_characters": {}}
    table = summary.warnings(
        _tables.read_features(given.features),
        _tables.read(given.metrics),
        {fact["model"]: fact["duplicates"] for fact in found},
        corpus["dropped_characters"],
    )
    _tables.write(snakemake, {"warnings": table})


if __name__ == "__main__":
    _job.run(main, snakemake)
