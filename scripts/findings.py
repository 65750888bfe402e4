"""Record the findings of a run and their direction before fresh runs are trained to confirm them."""

import _job
import _tables


@_job.script
def main(snakemake):
    params = snakemake.params
    record = {
        "run": params.run,
        "seeds": dict(params.seeds),
        "fresh_run": params.confirm["run"],
        "obstacle": params.confirm["obstacle"],
        "findings": _tables.read(snakemake.input[0]).to_dict("records"),
    }
    _job.write_json(snakemake.output[0], record, indent=1)
