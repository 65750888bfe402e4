"""The final loss of every model, forecast from the first part of its training, and how good the forecasts were."""

import logging

import frames
import job
from toposcale.forecasting import evaluation


def main(snakemake):
    histories = frames.read_histories(snakemake.input)
    params = snakemake.params
    forecasts, seconds = evaluation.forecast_table(histories, fractions=params.fractions, seed=params.seed)
    logging.info("seconds by method and fraction\n%s", seconds.to_string(index=False))
    evaluated = evaluation.evaluate(forecasts, histories, resamples=params.resamples, seed=params.seed)
    frames.write(snakemake, forecasts=forecasts, forecast_evaluation=evaluated)


if __name__ == "__main__":
    job.run(main, snakemake)
