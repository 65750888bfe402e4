"""Train one model through one checkpoint or through all of them."""

import logging
import os
import shutil
from pathlib import Path

import numpy as np

import _job
from toposcale.forecasting.runs.schedules import schedule_of
from toposcale.io import schemas, tables, tensor_files
from toposcale.io.errors import UserError
from toposcale.training import callbacks, corpus, trainer
from toposcale.training.gpt import GPTShape


def training_of(snakemake):
    """Return the section `training` of a model, with the rows of a schedule that the user wrote into a file."""
    training = snakemake.params.training
    for path in snakemake.input.schedule:  # none, or one
        rows = tables.read(schemas.TABLES["schedules"], path)
        training = {
            **training,
            "schedule": {"at": rows["step"].to_pylist(), "values": rows["learning_rate"].to_pylist()},
        }
    return training


def settings_of(training, seed):
    """Return the settings of the trainer."""
    names = ("steps", "batch_size", "learning_rate", "weight_decay", "warmup_steps")
    schedule = training.get("schedule")
    return trainer.TrainingSettings(
        **{name: training[name] for name in names},
        schedule=schedule_of(schedule) if schedule else None,
        clip=training["gradient_clip"],
        seed=seed,
    )


class TrainingJob:
    """Training job: from the previous checkpoint, or from the start, through all checkpoints that it does."""

    def __init__(self, snakemake):
        self.snakemake, params = snakemake, snakemake.params
        self.name, self.steps = snakemake.wildcards.model, params.steps
        self.device = trainer.configure_torch(params.device)
        text, training = corpus.load_corpus(snakemake.input.corpus), training_of(snakemake)
        self.shape = GPTShape(text.vocab_size, training["context"], **params.architecture)
        self.settings = settings_of(training, params.seed)
        training_facts = [params.architecture, params.seed, training, text.sha256, text.tokenizer_json]
        self.metadata = {
            "seed": str(params.seed),
            "configuration": _job.digest(training_facts),
            "digest": params.digest,
        }
        self.metadata |= {name: str(size) for name, size in vars(self.shape).items()}
        self.sketch = None
        if params.sketch:
            self.sketch = callbacks.WeightSketch(self.shape.n_parameters, **params.sketch)
        self.tokens = trainer.share_of_text(text.train, training["data_fraction"], self.shape.context)
        self.validation_sequences, self.training_sequences = (
            trainer.validation_sequences(tokens, self.shape.context, training["validation_sequences"])
            for tokens in (text.validation, self.tokens)
        )
        # Finished parts are kept in a folder of their own, from which a killed job is resumed.
        self.folder = Path(snakemake.output.checkpoints[0]).parent / "unfinished"
        self.optimiser = self.folder / "optimiser"

    def run(self):
        """Train through the remaining checkpoints and write the outputs."""
        outputs = self.snakemake.output
        state, remaining = self.resume()
        for step in remaining:
            self.advance(state, step)
        for step, checkpoint in zip(self.steps, outputs.checkpoints, strict=True):
            os.replace(self.part("checkpoint", step), checkpoint)
        metadata = _job.provenance(self.snakemake)
        tables.write(tables.gather(schemas.TABLES["training"], self.parts("log")), outputs.log, metadata)
        tables.write(tables.gather(schemas.TABLES["metrics"], self.parts("metrics")), outputs.metrics, metadata)
        if self.sketch:
            sketches = [tensor_files.read(path)[0] for path in self.parts("sketch")]
            arrays = {name: np.concatenate([part[name] for part in sketches]) for name in sketches[0]}
            tensor_files.write(outputs.sketch, arrays, self.metadata | {"model": self.name})
        if outputs.optimiser:
            os.replace(self.optimiser, outputs.optimiser)
        shutil.rmtree(self.folder)

    def part(self, kind, step):
        """Return the file of a finished checkpoint until the job is complete."""
        return self.folder / f"{kind}-{step}"

    def parts(self, kind):
        return [self.part(kind, step) for step in self.steps]

    def resume(self):
        """Return the state that a killed job left, or the initial one, and the remaining checkpoints."""
        if self.optimiser.exists():
            try:
                metadata = tensor_files.read_metadata(self.optimiser)
                if metadata.get("job") == self.signature():
                    step = int(metadata["step"])
                    state = trainer.load_state(self.part("checkpoint", step), self.optimiser, self.shape, self.device)
                    return state, self.steps[self.steps.index(step) + 1 :]
            except UserError as error:
                logging.info("starts again, since what a killed job left cannot be read: %s", error)
        inputs = self.snakemake.input
        if inputs.checkpoint:
            state = trainer.load_state(inputs.checkpoint, inputs.optimiser, self.shape, self.device)
        else:
            state = trainer.initial_state(self.name, self.shape, self.settings, self.device)
        return state, self.steps

    def signature(self):
        """Return a hash of the settings that a resumed job shares with the killed one."""
        params = self.snakemake.params
        return _job.digest([self.metadata["configuration"], params.steps, params.sketch])

    def advance(self, state, until):
        """Train up to `until`, and write the weights, the log, the sketches if asked for, and the losses."""
        with Path(str(self.snakemake.log)).open("a") as file:
            training_callbacks = [callbacks.ProgressLog(file, until), self.sketch]
            _, rows = trainer.train(state, self.settings, self.tokens, until, filter(None, training_callbacks))
        trainer.save_weights(self.part("checkpoint", until), state, self.metadata)
        if self.sketch:
            self.sketch.save(self.part("sketch", until), self.metadata)
        tables.write(tables.from_rows(schemas.TABLES["training"], rows), self.part("log", until))
        loss = trainer.validation_loss(state.model, self.validation_sequences)
        gap = loss - trainer.validation_loss(state.model, self.training_sequences)
        rows = [
            {"model": self.name, "step": until, "metric": metric, "value": value}
            for metric, value in (("generalisation_gap", gap), ("validation_loss", loss))
        ]
        tables.write(tables.from_rows(schemas.TABLES["metrics"], rows), self.part("metrics", until))
        # Written last: a checkpoint with this file is complete.
        trainer.save_optimiser(self.optimiser, state, self.metadata | {"job": self.signature()})


@_job.script
def main(snakemake):
    TrainingJob(snakemake).run()
