"""What the search of a run found, with its direction: written down before fresh runs are trained to confirm it."""

import json

import _job
import _tables
from toposcale.io import files


def main(snakemake):
    params = snakemake.params
    findings = _tables.read(snakemake.input[0])
    record = {
        "run": params.run,
        "seeds": dict(params.seeds),
        "fresh_run": params.confirm["run"],
        "obstacle": params.confirm["obstacle"],
        "findings": findings.to_dict("records"),
    }
    with files.atomic_write(snakemake.output[0]) as path:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _job.run(main, snakemake)
