"""What the run says about the project's questions, a sentence each."""

import frames
import job
from toposcale import summary


def main(snakemake):
    given = snakemake.input
    read = [frames.read(given[name]) for name in ("verdicts", "forecast_evaluation", "decision_evaluation")]
    frames.write(snakemake, summary=summary.summary(*read))


if __name__ == "__main__":
    job.run(main, snakemake)
