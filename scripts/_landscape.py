"""What the scripts of the landscape share: a checkpoint as a loss of its parameters, and rows of its tables."""

import numpy as np
import torch

from toposcale import checkpoints
from toposcale.checkpoints import language_models
from toposcale.io.errors import SharedError
from toposcale.landscape.losses import probe_loss
from toposcale.training import trainer


def load(checkpoint, settings, tokenizer_folder=None):
    """The model of a checkpoint, on the device that the settings ask for, and its tokenizer: None for the corpus' own."""
    path = checkpoints.locate(checkpoint)
    device = trainer.configure_torch(settings["device"])
    model = language_models.load_model(path, device=str(device), differentiable=True)
    if path.is_file():
        return model, None
    return model, language_models.load_tokenizer(tokenizer_folder or path, model.vocab_size)


def probe_losses(model, tokenizer, text, settings):
    """A loss for each probe batch: the first is what is measured, the others tell how sure it is."""
    tokens = text.validation
    if tokenizer:
        pieces = tokenizer(list(text.probe_texts), add_special_tokens=False)["input_ids"]
        tokens = np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces])
    length = min(settings["max_tokens"], model.context)
    size, batches = settings["batch_size"], 1 + settings["repeats"]
    sequences = trainer.validation_sequences(tokens, length, size * batches) if len(tokens) > length else ()
    if len(sequences) < size * batches:
        raise SharedError(
            f"corpus.validation: {len(sequences)} probe sequences of {length} tokens, but landscape.batch_size and "
            f"landscape.repeats ask for {size * batches}; give a longer text, or lower one of them"
        )
    probes = torch.from_numpy(sequences).to(next(model.module.parameters()).device)
    parts = [probes[place::batches] for place in range(batches)]
    return [probe_loss(model.module, part[:, :-1], part[:, 1:]) for part in parts]


def surface_rows(surface, **where):
    """A surface as rows (x, y, loss): of three axes the slice in the middle of the third."""
    x, y = surface.coordinates[:2]
    losses = surface.values if surface.values.ndim == 2 else surface.values[:, :, len(surface.values) // 2]
    return [{**where, "x": x[i], "y": y[j], "loss": losses[i, j]} for i in range(len(x)) for j in range(len(y))]


def profile_rows(profile, direction, **where):
    """A landscape profile as rows, a row a component and level."""
    return [
        {**where, "direction": direction, "component": minimum, "level": level, "mass": mass}
        for level, masses in zip(profile.levels.tolist(), profile.mass.tolist(), strict=True)
        for minimum, mass in zip(profile.minima.tolist(), masses, strict=True)
        if mass > 0
    ]
