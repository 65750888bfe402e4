"""Train one model: from the checkpoint before to this one, or from the start to the end through every checkpoint."""

import os
import shutil
from pathlib import Path

import _job
from toposcale.io import schemas, tables, tensor_files
from toposcale.io.errors import UserError
from toposcale.training import callbacks, corpus, trainer
from toposcale.training.gpt import GPTShape
from toposcale.training.schedules import schedule_of


def main(snakemake):
    params = snakemake.params
    device = trainer.configure_torch(params.device)
    text = corpus.load_corpus(snakemake.input.corpus)
    shape = shape_of(params, text.vocab_size)
    plan = plan_of(params)
    metadata = {
        "seed": str(params.seed),
        "configuration": _job.digest(
            [params.architecture, params.seed, params.training, text.sha256, text.tokenizer_json]
        ),
        **{name: str(size) for name, size in vars(shape).items()},
    }
    job = TrainingJob(snakemake, text, shape, plan, device, metadata)
    if hasattr(snakemake.wildcards, "step"):
        job.one_checkpoint()
    else:
        job.every_checkpoint()


def shape_of(params, vocab_size):
    sizes = {key: params.architecture[key] for key in ("d_model", "n_layers", "n_heads")}
    return GPTShape(vocab_size, params.training["context"], **sizes)


def plan_of(params):
    names = ("steps", "batch_size", "learning_rate", "weight_decay", "warmup_steps")
    settings = {name: params.training[name] for name in names}
    schedule = params.training.get("schedule")
    settings["schedule"] = schedule_of(schedule) if schedule else None
    return trainer.TrainingPlan(**settings, clip=params.training["gradient_clip"], seed=params.seed)


class TrainingJob:
    """The pieces of one job, held together: from a state to the files of the next checkpoint."""

    def __init__(self, snakemake, text, shape, plan, device, metadata):
        self.snakemake, self.shape, self.plan = snakemake, shape, plan
        self.device, self.metadata = device, metadata
        self.name = snakemake.wildcards.model
        self.provenance = _job.provenance(snakemake)
        settings = snakemake.params.sketch
        self.sketch = None
        if settings:
            self.sketch = callbacks.WeightSketch(shape.n_parameters, seed=plan.seed, **settings)
        training = snakemake.params.training
        self.tokens = trainer.share_of_text(text.train, training["data_fraction"], shape.context)
        count = training["validation_windows"]
        self.windows, self.seen = (
            trainer.validation_windows(tokens, shape.context, count)
            for tokens in (text.validation, self.tokens)
        )

    def one_checkpoint(self):
        """The job of one checkpoint: the state before is an input, the state after an output."""
        given, made = self.snakemake.input, self.snakemake.output
        state = self.start()
        if given.checkpoint:
            state = trainer.load_state(given.checkpoint, given.state, self.shape, self.device)
        step = int(self.snakemake.wildcards.step)
        self.advance(state, step, made.checkpoint, made.log, made.metrics, made.sketch)
        trainer.save_optimiser(made.state, state, self.metadata)

    def every_checkpoint(self):
        """The job of one model. What is done lies in a folder of its own, from which a killed job goes on."""
        made = self.snakemake.output
        folder = Path(made.checkpoint[0]).parent / "unfinished"
        optimiser = folder / "optimiser.safetensors"
        kinds = ["checkpoint", "log", "metrics", *(["sketch"] if made.sketch else [])]
        files = {
            step: {kind: folder / f"{kind}-{step}" for kind in kinds} for step in self.snakemake.params.steps
        }
        state, done = self.resume(files, optimiser)
        for step in self.snakemake.params.steps[done:]:
            self.advance(state, step, **files[step])
            trainer.save_optimiser(optimiser, state, self.metadata)
        for number, sources in enumerate(files.values()):
            for kind, source in sources.items():
                os.replace(source, made[kind][number])
        shutil.rmtree(folder)

    def start(self):
        return trainer.initial_state(self.name, self.shape, self.plan, self.device)

    def resume(self, files, optimiser):
        """The state that a killed job left and the number of checkpoints that are done; the start, and 0, without one."""
        try:
            metadata = tensor_files.read(optimiser)[1]
            if metadata["configuration"] == self.metadata["configuration"]:
                step = int(metadata["step"])
                state = trainer.load_state(files[step]["checkpoint"], optimiser, self.shape, self.device)
                return state, list(files).index(step) + 1
        except (UserError, KeyError):
            pass  # nothing usable was left: begin anew
        return self.start(), 0

    def advance(self, state, until, checkpoint, log, metrics, sketch=None):
        """Train up to `until`, then write its weights, the log, sketches on the way if asked for, and the losses."""
        with Path(str(self.snakemake.log)).open("a") as file:
            watching = [callbacks.ProgressLog(file, until), self.sketch]
            _, rows = trainer.train(state, self.plan, self.tokens, until, filter(None, watching))
        trainer.save_weights(checkpoint, state, self.metadata)
        if self.sketch:
            self.sketch.save(sketch, self.metadata | {"model": self.name, "step": str(until)})
        tables.write(tables.from_rows(schemas.TABLES["training"], rows), log, self.provenance)
        loss = trainer.validation_loss(state.model, self.windows)
        gap = loss - trainer.validation_loss(state.model, self.seen)
        rows = [
            {"model": self.name, "step": until, "metric": metric, "value": value}
            for metric, value in (("generalisation_gap", gap), ("validation_loss", loss))
        ]
        tables.write(tables.from_rows(schemas.TABLES["metrics"], rows), metrics, self.provenance)


if __name__ == "__main__":
    _job.run(main, snakemake)
