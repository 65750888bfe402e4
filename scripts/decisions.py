"""Train on, or scale up: what each policy would have advised, and what following it would have cost and saved."""

import frames
import job
from toposcale.forecasting import decision


def main(snakemake):
    histories = frames.read_histories(snakemake.input)
    params = snakemake.params
    decisions = decision.decision_table(
        histories, fractions=params.fractions, budget=params.budget or None, seed=params.seed
    )
    evaluated = decision.evaluate_decisions(decisions, resamples=params.resamples, seed=params.seed)
    frames.write(snakemake, decisions=decisions, decision_evaluation=evaluated)


if __name__ == "__main__":
    job.run(main, snakemake)
