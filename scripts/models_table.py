"""One row a model: what it is, how large, and how many tokens it sees a step."""

import job
from toposcale import checkpoints, tables


def main(snakemake):
    params = snakemake.params
    rows, given = [], iter(snakemake.input)
    for name, model in params.models.items():
        row = {"model": name, **model}
        # A model that was monitored comes with its size and without a checkpoint.
        row["n_parameters"] = row["n_parameters"] or checkpoints.count_parameters(
            checkpoints.locate(next(given))
        )
        row["tokens_per_step"] = row["tokens_per_step"] or params.trained_tokens_per_step
        rows.append(row)
    tables.write(tables.from_rows(tables.MODELS, rows), snakemake.output[0], job.provenance(snakemake))


if __name__ == "__main__":
    job.run(main, snakemake)
