"""A checkpoint as a model that can be run: one interface over the project's own GPT and transformers' causal models."""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from toposcale.checkpoints.matrices import count_weights, is_buffer, tensor_shapes, weight_files
from toposcale.io.errors import UserError, is_shared, listed, reason_of
from toposcale.io.files import parse_json, read_text, regular_files
from toposcale.io.tensor_files import read_metadata
from toposcale.training.gpt import GPT, GPTShape
from toposcale.training.trainer import load_weights

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_SMALLEST_VOCABULARY_SHARE = 0.9  # models pad their vocabulary to a round number: by 3% at most in those published
# What config.json counts that has tensors of its own, one by one or, of experts, stacked.
_COUNTED = re.compile(r"(?:^|_)(?:n|num|encoder|decoder)_(?:\w+_)?(layer|expert)s?$|^(?:en|de)coder_(layer)s$")
_MOST_BUFFERED = 1 << 28  # entries of masks and tables, which no file holds: 1 GB
_LONGEST_GROWTH = 1000
_MOST_ADDED_TOKENS = 64
_PROBE = "The shape of a weight, 0.5: is it (as some say) a sign?"


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model, split where the logits would be made.

    `hidden_states(tokens)`: integers (batch, length), padded on the right if at all, to the embedding layer's and every
    block's output, each (batch, length, d_model), the last one after the final norm; only that one where
    `last_only`. `head_weight` (vocab_size, d_model) and `head_bias` (vocab_size,) or None make a product of it, and of
    each entry of that `logit_scale` and, where there is one, `logit_cap` make a logit. `module(tokens)`: the whole model,
    to a tensor of logits (batch, length, vocab_size) or an output of transformers with such `logits`.
    """

    hidden_states: Callable[[Tensor, bool], list[Tensor]]
    head_weight: Tensor
    head_bias: Tensor | None
    context: int
    logit_scale: float = 1.0
    logit_cap: float | None = None
    module: Any = None

    def logits(self, product: Tensor) -> Tensor:
        """scale * product, softly kept within the cap as cap * tanh(x / cap); any shape."""
        scaled = product if self.logit_scale == 1.0 else product * self.logit_scale
        return scaled if self.logit_cap is None else self.logit_cap * torch.tanh(scaled / self.logit_cap)

    @property
    def vocab_size(self) -> int:
        """Number of tokens that the model tells apart, padding of the vocabulary included."""
        return self.head_weight.shape[0]


def load_model(
    checkpoint: str | Path, *, dtype: str = "float32", device: str = "cpu", differentiable: bool = False
) -> LanguageModel:
    """The model of a checkpoint, in evaluation mode: a safetensors file of the project's GPT, or a folder.

    From a folder only local files are read and no code of the repository is run. `dtype`: float32 or bfloat16.
    `differentiable`: for losses as functions of the parameters of the `module`, whose logits may be made in any way.
    UserError: damaged files, an architecture that transformers does not have, weights that are missing or left over
    (transformers would fill them in at random), sizes that the files cannot hold, or logits that are not the head's
    product, scaled and capped as config.json says.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    path = Path(checkpoint)
    files = weight_files(path)
    with torch.inference_mode(not differentiable):
        if path.is_file():
            gpt = _gpt(path, torch.device(device)).to(DTYPES[dtype])

            def hidden_states(tokens: Tensor, last_only: bool) -> list[Tensor]:
                return [gpt.hidden_states(tokens)] if last_only else gpt.all_hidden_states(tokens)

            head = gpt.token_embedding.weight.detach()
            return LanguageModel(hidden_states, head, None, gpt.shape.context, module=gpt)
        with _errors_of(path, "transformers cannot load it"):
            model = _pretrained(path, files, DTYPES[dtype], device)
            model.config.use_cache = False
            loaded = wrap_pretrained(model, str(path))
            if not differentiable:
                _check_logits(path, loaded, device)
            return loaded


def load_tokenizer(folder: str | Path, vocab_size: int) -> PreTrainedTokenizerBase:
    """The tokenizer in a checkpoint's folder, padding with its end-of-text token where it has no token for that.

    UserError: none there; it makes a text far longer; or its vocabulary is larger than the model's `vocab_size` or less
    than nine tenths of it: a tokenizer whose files are missing comes up with two tokens and no error.
    """
    from transformers import AutoTokenizer

    with _errors_of(folder, "no readable tokenizer"):
        regular_files(folder)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)
        # A tokenizer that is written in Python has none, and no steps that a file could choose.
        backend = getattr(tokenizer, "backend_tokenizer", None)
        growth = longer_by(parse_json(backend.to_str())["normalizer"]) if backend else 1
        added = tokenizer.num_special_tokens_to_add()
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if growth <= _LONGEST_GROWTH and len(tokenizer(_PROBE)["input_ids"]) < 2:
            raise UserError(f"{folder}: the tokenizer makes not even two tokens of a sentence")
    if growth > _LONGEST_GROWTH:
        raise UserError(f"{folder}: the tokenizer can make a text {growth} times longer, which no memory holds")
    if added > _MOST_ADDED_TOKENS:
        raise UserError(f"{folder}: the tokenizer adds {added} tokens to every text")
    if highest >= vocab_size:
        raise UserError(f"{folder}: the tokenizer numbers tokens to {highest}, the model only {vocab_size}")
    if (size := len(tokenizer)) < _SMALLEST_VOCABULARY_SHARE * vocab_size:
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
    """How many times longer a normaliser, as it stands in tokenizer.json, can make a text; a bound."""
    match normalizer:
        case {"type": "Sequence", "normalizers": steps}:
            return math.prod(map(longer_by, steps))
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if old:
            return max(1, -(-len(new) // len(old)))
        case {"type": "Replace", "content": str(new)}:  # an expression may match between any two characters
            return len(new) + 1
        case {"type": "Prepend", "prepend": str(new)}:
            return max(1, len(new))
        case {"type": "Precompiled", "precompiled_charsmap": str(stored)}:
            # The length of a tree, the tree, and the texts that it puts in place of others.
            table = base64.b64decode(stored)
            texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
            return max(1, *map(len, texts))
    return 1


def _gpt(path: Path, device: torch.device) -> GPT:
    metadata, sizes = read_metadata(path), [field.name for field in fields(GPTShape)]
    try:
        shape = GPTShape(**{name: int(metadata[name]) for name in sizes})
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: its metadata does not give the sizes of a GPT ({', '.join(sizes)})") from error
    if shape.n_parameters > count_weights(tensor_shapes(path)):
        raise UserError(f"{path}: its metadata are of another model, with {shape.n_parameters} weights")
    return load_weights(path, shape, device).eval()


def _pretrained(folder: Path, files: list[Path], dtype: torch.dtype, device: str) -> Any:
    # Else a thread asks the Hub to convert `.bin` weights.
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
    from transformers import AutoModelForCausalLM

    _check_sizes(folder)
    load: Any = AutoModelForCausalLM.from_pretrained
    safe = files[0].suffix == ".safetensors"
    model, info = load(str(folder), dtype=dtype, use_safetensors=safe, output_loading_info=True, **_LOCAL)
    # Transformers only warns about missing weights, and fills them with random numbers.
    wrong = {
        "missing": sorted(info["missing_keys"]),
        "left over": sorted(name for name in info["unexpected_keys"] if not is_buffer(name)),
        "of another shape": sorted(str(entry[0]) for entry in info["mismatched_keys"]),
    }
    for what, names in wrong.items():
        if names:
            raise UserError(f"{folder}: weights are {what}: {listed(names, 3)}")
    return model.to(device).eval()


def wrap_pretrained(model: Any, name: str) -> LanguageModel:
    """A transformers causal model as a `LanguageModel`. UserError, with `name`: its head is not linear."""
    body, head = model.base_model, model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear):
        raise UserError(f"{name}: no linear output head, which is needed for the perplexity")

    def hidden_states(tokens: Tensor, last_only: bool) -> list[Tensor]:
        # No mask: the padding is on the right, where a causal model's tokens do not look.
        output = body(tokens, use_cache=False, output_hidden_states=not last_only)
        return [output.last_hidden_state] if last_only else list(output.hidden_states)

    config = model.config.get_text_config()
    # BLOOM and Mamba have no position limit, and say so by having no such entry.
    context = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None) or 1 << 30
    if not isinstance(context, int) or context < 2:
        raise UserError(f"{name}: config.json says that it reads {context!r} tokens, but a loss needs two")
    bias = None if head.bias is None else head.bias.detach()
    # Granite divides, Cohere multiplies, Gemma 2 caps. `_check_logits` sees whether that is all.
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)
    return LanguageModel(hidden_states, head.weight.detach(), bias, context, scale, cap, model)


def _check_sizes(folder: Path) -> None:
    """Refuse a config.json that asks for more memory than the files hold: transformers gives it before it reads them."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shapes = tensor_shapes(folder)
    _check_counts(folder, parse_json(read_text(folder / "config.json")), shapes)
    config = AutoConfig.from_pretrained(str(folder), **_LOCAL)
    with torch.device("meta"):  # shapes without values
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    parameters = {name: list(tensor.shape) for name, tensor in model.named_parameters()}
    # Which of them are missing is seen when they are read; files may hold apart what a model stacks, and under other names.
    if count_weights(parameters) > 2 * (stored := count_weights(shapes)):
        largest = max(parameters, key=lambda name: math.prod(parameters[name]))
        raise UserError(
            f"{folder}: config.json describes a model of {count_weights(parameters)} weights (the most in {largest}, "
            f"{' x '.join(map(str, parameters[largest]))}), but its files hold {stored}"
        )
    buffered = sum(tensor.numel() for tensor in model.buffers())
    if buffered > _MOST_BUFFERED:
        raise UserError(f"{folder}: config.json asks for masks and tables of {buffered} entries")


def _check_counts(folder: Path, config: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse more layers or experts than the files can hold: transformers makes lists and modules of that many."""
    sizes = {size for shape in shapes.values() for size in shape}
    for name, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            _check_counts(folder, value, shapes)
        elif isinstance(value, int) and value > len(shapes) and (counted := _COUNTED.search(name)):
            if counted[1] == "expert" and value in sizes:  # stacked
                continue
            raise UserError(f"{folder}: config.json says {name}: {value}, but its files hold {len(shapes)} tensors")


def _check_logits(folder: Path, loaded: LanguageModel, device: str) -> None:
    """Some architectures do more to the product of the head; their perplexity would come out wrong."""
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


@contextmanager
def _errors_of(folder: str | Path, what: str) -> Iterator[None]:
    """Any error of a library over a user's files is a UserError about their folder; a full memory is not."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, UserError) or is_shared(error):
            raise
        raise UserError(f"{folder}: {what} ({reason_of(error)})") from error
