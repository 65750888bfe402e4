"""Load checkpoints as language models: one interface to the project's GPT and transformers' causal models."""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from toposcale.checkpoints.checkpoint import Checkpoint, count_weights
from toposcale.io.errors import UserError, as_user_error, listed
from toposcale.io.files import parse_json, read_text
from toposcale.io.not_weights import is_buffer
from toposcale.io.tensor_files import read_metadata
from toposcale.io.weight_files import regular_files
from toposcale.training.gpt import GPT, GPTShape
from toposcale.training.trainer import load_weights

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_MIN_VOCABULARY_SHARE = 0.9  # models pad their vocabulary to a round number: by 3% at most in those published
# Counts in config.json of parts that have tensors of their own: layers, and experts, which may be stacked.
_COUNTED = re.compile(r"(?:^|_)(?:n|num|encoder|decoder)_(?:\w+_)?(layer|expert)s?$|^(?:en|de)coder_(layer)s$")
_MAX_BUFFER_ENTRIES = 1 << 28  # entries of masks and tables, which no file holds: 1 GB
_MAX_GROWTH_FACTOR = 1000
_MAX_ADDED_TOKENS = 64
_PROBE = "The shape of a weight, 0.5: is it (as some say) a sign?"


@dataclass(frozen=True)
class LanguageModel:
    """Causal language model, split before the output head.

    `hidden_states(tokens, last_only)` maps integers (batch, length), padded on the right if at all, to the outputs of the
    embedding layer and of every block, each (batch, length, d_model), the last one after the final norm; with `last_only`
    to that one. The head multiplies it with `head_weight` (vocab_size, d_model) and adds `head_bias` (vocab_size,) or
    nothing; `logit_scale` and, if any, `logit_cap` turn the product into logits. `module(tokens)` is the complete model; it
    returns logits (batch, length, vocab_size), or an output of transformers that has them.
    """

    hidden_states: Callable[[Tensor, bool], list[Tensor]]
    head_weight: Tensor
    head_bias: Tensor | None
    context: int
    logit_scale: float = 1.0
    logit_cap: float | None = None
    module: Any = None

    def logits(self, product: Tensor) -> Tensor:
        """Return scale * product, soft-capped as cap * tanh(x / cap), in any shape."""
        scaled = product if self.logit_scale == 1.0 else product * self.logit_scale
        return scaled if self.logit_cap is None else self.logit_cap * torch.tanh(scaled / self.logit_cap)

    @property
    def vocab_size(self) -> int:
        """Return the size of the vocabulary, including its padding."""
        return self.head_weight.shape[0]


def load_model(
    checkpoint: str | Path, *, dtype: str = "float32", device: str = "cpu", differentiable: bool = False
) -> LanguageModel:
    """Load a checkpoint in evaluation mode: a safetensors file of the project's GPT, or a folder.

    Of a folder only local files are read, and no code in it is run. `dtype` is float32 or bfloat16. With `differentiable`
    the loss can be differentiated by the parameters of `module`, whose logits may be computed in any way. Raise UserError
    for damaged files, an architecture that transformers lacks, missing or unexpected weights (transformers would
    initialise them at random), sizes larger than the files, or logits other than the product of the head, scaled and
    capped as config.json states.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    path, weights = Path(checkpoint), Checkpoint(checkpoint)
    with torch.inference_mode(not differentiable):
        if path.is_file():
            gpt = _gpt(path, weights.count.total, torch.device(device)).to(DTYPES[dtype])

            def hidden_states(tokens: Tensor, last_only: bool) -> list[Tensor]:
                return [gpt.hidden_states(tokens)] if last_only else gpt.all_hidden_states(tokens)

            head = gpt.token_embedding.weight.detach()
            return LanguageModel(hidden_states, head, None, gpt.shape.context, module=gpt)
        with as_user_error(path, "transformers cannot load it"):
            model = _pretrained(path, weights, DTYPES[dtype], device)
            model.config.use_cache = False
            loaded = wrap_pretrained(model, str(path))
            if not differentiable:
                _check_logits(path, loaded, device)
            return loaded


def load_tokenizer(folder: str | Path, vocab_size: int) -> PreTrainedTokenizerBase:
    """Load the tokenizer in a checkpoint's folder; it pads with its end-of-text token if it has no padding token.

    Raise UserError if there is none, if it makes texts far longer, or if its vocabulary is larger than the model's
    `vocab_size` or below nine tenths of it: a tokenizer with missing files loads with two tokens and without an error.
    """
    from transformers import AutoTokenizer

    with as_user_error(folder, "no readable tokenizer"):
        regular_files(folder)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)
        # A tokenizer written in Python has none, and no steps that a file could choose.
        backend = getattr(tokenizer, "backend_tokenizer", None)
        growth = longer_by(parse_json(backend.to_str())["normalizer"]) if backend else 1
        added = tokenizer.num_special_tokens_to_add()
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if growth <= _MAX_GROWTH_FACTOR and len(tokenizer(_PROBE)["input_ids"]) < 2:
            raise UserError(f"{folder}: the tokenizer splits a sentence into fewer than two tokens")
    if growth > _MAX_GROWTH_FACTOR:
        raise UserError(f"{folder}: the tokenizer can make a text {growth} times longer, which exceeds any memory")
    if added > _MAX_ADDED_TOKENS:
        raise UserError(f"{folder}: the tokenizer adds {added} tokens to every text")
    if highest >= vocab_size:
        raise UserError(f"{folder}: the tokenizer numbers tokens to {highest}, the model only {vocab_size}")
    if (size := len(tokenizer)) < _MIN_VOCABULARY_SHARE * vocab_size:
        raise UserError(
            f"{folder}: the tokenizer has {size} tokens, the model {vocab_size}; "
            "files of the tokenizer are missing or belong to another model"
        )
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise UserError(f"{folder}: the tokenizer has neither a padding nor an end-of-text token")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def longer_by(normalizer: Any) -> int:
    """Return an upper bound on the factor by which a normaliser of tokenizer.json can lengthen a text."""
    match normalizer:
        case {"type": "Sequence", "normalizers": steps}:
            return math.prod(map(longer_by, steps))
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if old:
            return max(1, -(-len(new) // len(old)))
        case {"type": "Replace", "content": str(new)}:  # a regular expression may match between any two characters
            return len(new) + 1
        case {"type": "Prepend", "prepend": str(new)}:
            return max(1, len(new))
        case {"type": "Precompiled", "precompiled_charsmap": str(stored)}:
            # The length of a tree, the tree, and the replacement texts.
            table = base64.b64decode(stored)
            texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
            return max(1, *map(len, texts))
    return 1


def _gpt(path: Path, n_weights: int, device: torch.device) -> GPT:
    metadata, sizes = read_metadata(path), [field.name for field in fields(GPTShape)]
    problem = f"its metadata does not give the sizes of a GPT, {', '.join(sizes)}"
    with as_user_error(path, problem, (KeyError, ValueError)):
        shape = GPTShape(**{name: int(metadata[name]) for name in sizes})
    if shape.n_parameters > n_weights:
        raise UserError(f"{path}: its metadata are of another model, with {shape.n_parameters} weights")
    return load_weights(path, shape, device).eval()


def _pretrained(folder: Path, weights: Checkpoint, dtype: torch.dtype, device: str) -> Any:
    # Otherwise a thread asks the Hub to convert `.bin` weights.
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
    from transformers import AutoModelForCausalLM

    _check_sizes(folder, weights.shapes)
    load: Any = AutoModelForCausalLM.from_pretrained
    safe = weights.files[0].suffix == ".safetensors"
    model, info = load(str(folder), dtype=dtype, use_safetensors=safe, output_loading_info=True, **_LOCAL)
    # Transformers only warns about missing weights, and initialises them at random.
    wrong = {
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(name for name in info["unexpected_keys"] if not is_buffer(name)),
        "of another shape": sorted(str(entry[0]) for entry in info["mismatched_keys"]),
    }
    for problem, names in wrong.items():
        if names:
            raise UserError(f"{folder}: weights are {problem}: {listed(names, 3)}")
    return model.to(device).eval()


def wrap_pretrained(model: Any, name: str) -> LanguageModel:
    """Wrap a causal model of transformers; raise UserError, with `name`, if its head is not linear."""
    body, head = model.base_model, model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear):
        raise UserError(f"{name}: no linear output head, which is needed for the perplexity")

    def hidden_states(tokens: Tensor, last_only: bool) -> list[Tensor]:
        # No mask: the padding is on the right, and causal attention does not see it.
        output = body(tokens, use_cache=False, output_hidden_states=not last_only)
        return [output.last_hidden_state] if last_only else list(output.hidden_states)

    config = model.config.get_text_config()
    # BLOOM and Mamba have no position limit, and no such entry.
    context = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None) or 1 << 30
    if not isinstance(context, int) or context < 2:
        raise UserError(f"{name}: config.json gives a context of {context!r} tokens, but a loss needs at least 2")
    bias = None if head.bias is None else head.bias.detach()
    # Granite divides, Cohere multiplies, Gemma 2 caps. `_check_logits` verifies that this is all.
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)
    return LanguageModel(hidden_states, head.weight.detach(), bias, context, scale, cap, model)


def _check_sizes(folder: Path, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise UserError if config.json describes more weights than the files hold, which transformers would allocate."""
    from transformers import AutoConfig, AutoModelForCausalLM

    _check_counts(folder, parse_json(read_text(folder / "config.json")), shapes)
    config = AutoConfig.from_pretrained(str(folder), **_LOCAL)
    with torch.device("meta"):  # shapes without values
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    parameters = {name: list(tensor.shape) for name, tensor in model.named_parameters()}
    # Missing weights are found on loading; files may split what a model stacks, and use other names.
    if count_weights(parameters) > 2 * (stored := count_weights(shapes)):
        largest = max(parameters, key=lambda name: math.prod(parameters[name]))
        raise UserError(
            f"{folder}: config.json describes a model of {count_weights(parameters)} weights (the most in {largest}, "
            f"{' x '.join(map(str, parameters[largest]))}), but its files hold {stored}"
        )
    buffered = sum(tensor.numel() for tensor in model.buffers())
    if buffered > _MAX_BUFFER_ENTRIES:
        raise UserError(f"{folder}: config.json describes masks and tables of {buffered} entries")


def _check_counts(folder: Path, config: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise UserError for more layers or experts than the files can hold, which transformers would create."""
    sizes = {size for shape in shapes.values() for size in shape}
    for name, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            _check_counts(folder, value, shapes)
        elif isinstance(value, int) and value > len(shapes) and (counted := _COUNTED.search(name)):
            if counted[1] == "expert" and value in sizes:  # stacked
                continue
            raise UserError(f"{folder}: config.json says {name}: {value}, but its files hold {len(shapes)} tensors")


def _check_logits(folder: Path, loaded: LanguageModel, device: str) -> None:
    """Raise UserError if the architecture changes its logits otherwise, which would make the perplexity wrong."""
    tokens = torch.arange(4, device=device)[None] % loaded.vocab_size
    expected = loaded.module(tokens).logits.float()
    if not torch.isfinite(expected).all():
        raise UserError(f"{folder}: its logits are NaN or infinite")
    states = loaded.hidden_states(tokens, True)[-1]
    product = loaded.logits(torch.nn.functional.linear(states, loaded.head_weight, loaded.head_bias))
    # The same operations on the same numbers; a cap or a factor changes far more than a bfloat16 rounding (2^-8).
    if not torch.allclose(product.float(), expected, rtol=0.01, atol=0.01 * float(expected.abs().max())):
        how = "in other ways than scaling and capping, which is not supported"
        raise UserError(f"{folder}: {type(loaded.module).__name__} changes its logits {how}")
