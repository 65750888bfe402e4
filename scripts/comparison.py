"""Published values beside those of this run."""

import pandas as pd

import frames
import job
from toposcale import comparison


def main(snakemake):
    published = pd.read_csv(snakemake.input.published, dtype={"value": str, "table": str})
    names = comparison.Run.__dataclass_fields__
    run = comparison.Run(**{name: frames.read(snakemake.input[name]) for name in names})
    params = snakemake.params
    setting = comparison.setting_differences(params.training, params.corpus, params.seeds)
    frames.write(snakemake, comparison=comparison.compare(published, run, setting))


if __name__ == "__main__":
    job.run(main, snakemake)
