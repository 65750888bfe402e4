"""One row a model: what it is, how large, and how many tokens it sees a step."""

import job
from toposcale import checkpoints, tables


def main(snakemake):
    params = snakemake.params
    rows = []
    for (name, model), checkpoint in zip(params.models.items(), snakemake.input, strict=True):
        size = checkpoints.count_parameters(checkpoints.locate(checkpoint))
        row = {"model": name, **model, "n_parameters": size}
        row["tokens_per_step"] = row["tokens_per_step"] or params.trained_tokens_per_step
        rows.append(row)
    tables.write(tables.from_rows(tables.MODELS, rows), snakemake.output[0], job.provenance(snakemake))


if __name__ == "__main__":
    job.run(main, snakemake)
