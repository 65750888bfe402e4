"""Helpers of the landscape scripts: a checkpoint as a loss of its parameters, and rows of its tables."""

import numpy as np
import torch

from toposcale import checkpoints
from toposcale.checkpoints import language_models
from toposcale.io import tensor_files
from toposcale.io.errors import SharedError
from toposcale.landscape.losses import probe_loss
from toposcale.training import trainer


def load(checkpoint, settings, tokenizer_folder=None):
    """Load the model of a checkpoint and its tokenizer, None for that of the corpus, on the device of the settings."""
    path = checkpoints.locate(checkpoint)
    device = trainer.configure_torch(settings["device"])
    model = language_models.load_model(path, device=str(device), differentiable=True)
    if path.is_file():
        return model, None
    return model, language_models.load_tokenizer(tokenizer_folder or path, model.vocab_size)


def weights_like(parameters, checkpoint):
    """Return the weights of a checkpoint in the order and on the device of some parameters."""
    arrays = tensor_files.read(checkpoint)[0]
    return {name: torch.from_numpy(arrays[name]).to(tensor.device) for name, tensor in parameters.items()}


def probe_losses(model, tokenizer, text, settings):
    """Return a loss for each probe batch: the first is measured, the others give its uncertainty."""
    tokens = text.validation
    if tokenizer:
        token_lists = tokenizer(list(text.probe_texts), add_special_tokens=False)["input_ids"]
        tokens = np.concatenate([np.asarray(piece, dtype=np.int64) for piece in token_lists])
    length = min(settings["max_tokens"], model.context)
    size, batches = settings["batch_size"], 1 + settings["repeats"]
    sequences = trainer.validation_sequences(tokens, length, size * batches) if len(tokens) > length else ()
    if len(sequences) < size * batches:
        raise SharedError(
            f"corpus.validation: {len(sequences)} probe sequences of {length} tokens, but landscape.batch_size and "
            f"landscape.repeats ask for {size * batches}; give a longer text, or lower one of them"
        )
    probes = torch.from_numpy(sequences).to(next(model.module.parameters()).device)
    batches_of_probes = [probes[batch::batches] for batch in range(batches)]
    return [probe_loss(model.module, part[:, :-1], part[:, 1:]) for part in batches_of_probes]


def surface_rows(surface, **identifiers):
    """Return a surface as rows (x, y, loss); of a surface with three axes, the middle slice of the third."""
    x, y = surface.coordinates[:2]
    losses = surface.values if surface.values.ndim == 2 else surface.values[:, :, len(surface.values) // 2]
    return [{**identifiers, "x": x[i], "y": y[j], "loss": losses[i, j]} for i in range(len(x)) for j in range(len(y))]


def profile_rows(profile, direction, **identifiers):
    """Return a landscape profile as rows, one for each component and level."""
    return [
        {**identifiers, "direction": direction, "component": minimum, "level": level, "mass": mass}
        for level, masses in zip(profile.levels.tolist(), profile.mass.tolist(), strict=True)
        for minimum, mass in zip(profile.minima.tolist(), masses, strict=True)
        if mass > 0
    ]
