"""Models as transformers and our own training save them, loaded for a forward pass, and what is refused."""

from __future__ import annotations

import base64
import json
import resource
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tiny_model import TEXT, VOCABULARY
from toposcale.checkpoints import language_models
from toposcale.checkpoints.language_models import load_model, load_tokenizer
from toposcale.features.embeddings import forward_pass, tokenize
from toposcale.io.errors import UserError
from toposcale.io.tensor_files import write
from toposcale.training.gpt import GPT, GPTShape

TEXTS = [[1, 2, 3, 4, 5, 6, 7], [9, 8], [200, 300, 100, 4]]


@pytest.fixture
def folder(checkpoint_folders, tmp_path) -> Path:
    """A copy of a checkpoint that a test may spoil."""
    return Path(shutil.copytree(checkpoint_folders["step10"], tmp_path / "copy"))


def edit_config(folder: Path, **changes) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_weights(folder: Path, edit) -> None:
    file = folder / "model.safetensors"
    state = load_file(file)
    edit(state)
    save_file(state, file, metadata={"format": "pt"})


def test_against_transformers_own_loss_and_hidden_states(folder):
    found = forward_pass(load_model(folder), TEXTS, all_layers=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for row, text in enumerate(TEXTS):
        tokens = torch.tensor([text])
        with torch.inference_mode():
            output = model(tokens, labels=tokens, output_hidden_states=True)
        # float32 sums in another order.
        assert found.cross_entropies[row] == pytest.approx(output.loss.item() * (len(text) - 1), rel=1e-5)
        for layer, state in zip(found.embeddings.values(), output.hidden_states, strict=False):
            np.testing.assert_allclose(layer[row], state[0].mean(0), rtol=0, atol=3e-6)
    assert list(found.embeddings) == ["hidden.00", "hidden.01", "hidden.02", "all"]


def test_bfloat16_on_request(folder):
    model = load_model(folder, dtype="bfloat16")
    assert model.head_weight.dtype == torch.bfloat16
    exact = forward_pass(load_model(folder), TEXTS)
    # Eight bits of mantissa; the loss is that of nearly equal logits.
    assert forward_pass(model, TEXTS).perplexity == pytest.approx(exact.perplexity, rel=0.02)
    with pytest.raises(ValueError, match="dtype must be one of float32, bfloat16"):
        load_model(folder, dtype="float16")


def test_missing_weights_are_not_filled_in(folder):
    edit_weights(folder, lambda state: state.pop("gpt_neox.layers.1.mlp.dense_4h_to_h.weight"))
    with pytest.raises(UserError, match=r"weights are missing: .*layers\.1\.mlp\.dense_4h_to_h\.weight"):
        load_model(folder)


def test_weights_that_are_left_over_are_refused_and_buffers_are_not(folder):
    edit_weights(folder, lambda state: state.update({"gpt_neox.layers.0.attention.bias": torch.ones(2, 2)}))
    load_model(folder)
    edit_weights(folder, lambda state: state.update({"gpt_neox.layers.9.extra.weight": torch.ones(2, 2)}))
    with pytest.raises(UserError, match=r"weights are unexpected: .*layers\.9\.extra\.weight"):
        load_model(folder)


def test_weights_of_another_shape_are_refused(folder):
    edit_config(folder, intermediate_size=48)
    with pytest.raises(UserError, match="copy"):
        load_model(folder)


def test_an_architecture_that_is_unknown_or_brings_code_is_refused(folder):
    marker = folder / "ran"
    (folder / "modeling.py").write_text(f"open({str(marker)!r}, 'w')\n")
    edit_config(
        folder,
        model_type="homemade",
        auto_map={"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"},
    )
    with pytest.raises(UserError, match="transformers cannot load it"):
        load_model(folder)
    assert not marker.exists()


def test_logits_that_are_more_than_the_head_are_refused(folder, monkeypatch):
    from transformers import GPTNeoXForCausalLM

    plain = GPTNeoXForCausalLM.forward

    def capped(self, *args, **options):
        output = plain(self, *args, **options)
        output.logits = 0.05 * torch.tanh(output.logits / 0.05)
        return output

    monkeypatch.setattr(GPTNeoXForCausalLM, "forward", capped)
    with pytest.raises(UserError, match="GPTNeoXForCausalLM changes its logits in other ways"):
        load_model(folder)


def test_weights_of_nan_are_named(folder):
    edit_weights(folder, lambda state: state["gpt_neox.embed_in.weight"].fill_(float("nan")))
    with pytest.raises(UserError, match="logits are NaN"):
        load_model(folder)


def test_a_missing_config_is_one_line(folder):
    (folder / "config.json").unlink()
    with pytest.raises(UserError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


NESTED = "[" * 10**5 + "]" * 10**5
WRONG_CONFIGS = {
    "empty": "",
    "a list": "[]",
    "null": "null",
    "nested": NESTED,
    "nested entry": '{"model_type": "gpt_neox", "more": ' + NESTED + "}",
    "other type": {"hidden_size": "sixteen"},
    "null size": {"hidden_size": None},
    "no size": {"hidden_size": 0},
    "negative": {"num_hidden_layers": -1},
    "not divided": {"num_attention_heads": 3},  # refused by a check of the whole configuration
    "unknown activation": {"hidden_act": "homemade"},
    "list for a number": {"num_hidden_layers": [2]},
    "rope": {"rope_parameters": {"rope_type": "homemade"}},
    "precision": {"dtype": "homemade"},
    "one position": {"max_position_embeddings": 1},
    "negative positions": {"max_position_embeddings": -5},
    "attention": {"_attn_implementation": "homemade", "attn_implementation": "homemade"},
}


@pytest.mark.parametrize("config", WRONG_CONFIGS.values(), ids=WRONG_CONFIGS)
@pytest.mark.parametrize("load", [load_model, partial(load_model, differentiable=True)])
def test_a_config_that_no_model_has_is_one_line(folder, config, load):
    if isinstance(config, str):
        (folder / "config.json").write_text(config)
    else:
        edit_config(folder, **config)
    with pytest.raises(UserError) as caught:
        load(folder)
    assert str(caught.value).startswith(f"{folder}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


# Tokenizers.


@pytest.mark.parametrize("content", ["", "[]", "null", NESTED, '{"model": ' + NESTED + "}"], ids=len)
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_that_cannot_be_read_is_one_line(folder, name, content):
    (folder / name).write_text(content)
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder, VOCABULARY)
    assert str(caught.value).startswith(f"{folder}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def replaced(pattern: dict[str, str], content: str) -> dict:
    return {"type": "Replace", "pattern": pattern, "content": content}


def charsmap(*contents: bytes) -> dict:
    """A normaliser in the format of sentencepiece: the length of a tree, the tree, and the texts that it points to."""
    stored = (4).to_bytes(4, "little") + b"tree" + b"\0".join(contents) + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(stored).decode()}


def sequence(*steps: dict) -> dict:
    return {"type": "Sequence", "normalizers": list(steps)}


LONG = "e" * 2000
GROWING = {
    "replaced": replaced({"String": "e"}, LONG),
    "by a regular expression": replaced({"Regex": "[a-z]"}, LONG),
    "again and again": sequence(*[replaced({"String": "e"}, "ee")] * 40),
    "between any two": sequence(*[replaced({"Regex": "x*"}, "y")] * 40),
    "nested": sequence(sequence(replaced({"String": "e"}, "e" * 50)), replaced({"String": "e"}, "e" * 50)),
    "prepended": {"type": "Prepend", "prepend": LONG},
}
USUAL = {
    "letters": sequence({"type": "NFKC"}, {"type": "Lowercase"}, {"type": "StripAccents"}),
    "spaces": sequence({"type": "Prepend", "prepend": "_"}, replaced({"String": " "}, "_")),
    "quotes": sequence(*[replaced({"String": "''"}, '"')] * 40, replaced({"Regex": " {2,}"}, " ")),
    "none": None,
}


def with_tokenizer(folder: Path, **parts) -> Path:
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))
    return folder


@pytest.mark.parametrize("normalizer", GROWING.values(), ids=GROWING)
def test_a_tokenizer_that_makes_texts_much_longer_is_refused(folder, normalizer):
    with_tokenizer(folder, normalizer=normalizer)
    with pytest.raises(UserError, match=r"can make a text \d+ times longer"):
        load_tokenizer(folder, VOCABULARY)


@pytest.mark.parametrize("normalizer", USUAL.values(), ids=USUAL)
def test_what_normalisers_usually_do_is_read(folder, normalizer):
    tokenizer = load_tokenizer(with_tokenizer(folder, normalizer=normalizer), VOCABULARY)
    assert len(tokenize([TEXT], tokenizer, tokens=16)[0]) == 16


def test_texts_of_a_table_of_characters_count_as_well():
    assert language_models.longer_by(charsmap(b"e", "\ufdfa".encode())) == 3
    assert language_models.longer_by(sequence(charsmap(b"e" * 70, b"x"), charsmap(b"ee"))) == 140


def test_a_tokenizer_that_adds_many_tokens_to_every_text_is_refused(folder):
    end = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [end] * 100 + [text], "pair": [text, text]}
    ids = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}
    with_tokenizer(folder, post_processor=template | {"special_tokens": ids})
    with pytest.raises(UserError, match="adds 100 tokens to every text"):
        load_tokenizer(folder, VOCABULARY)


def words(**numbers: int) -> dict:
    """A model of a tokenizer with the words of our vocabulary, and others by number."""
    numbers = {"<|endoftext|>": VOCABULARY - 1, **numbers}
    vocabulary = {f"word{number}": number for number in range(VOCABULARY - len(numbers))} | numbers
    return {"type": "WordLevel", "vocab": vocabulary, "unk_token": "word0"}


WRONG_TOKENIZERS = {
    "a number that the model does not have": ({"model": words(the=10**6)}, "the model only 320"),
    "no token": (
        {"normalizer": replaced({"Regex": "."}, ""), "post_processor": None},
        "splits a sentence into fewer than two tokens",
    ),
    "one token": (
        {"model": words(), "pre_tokenizer": None, "post_processor": None},
        "splits a sentence into fewer than two tokens",
    ),
    "an unknown word": ({"model": words() | {"unk_token": "none"}}, "no readable tokenizer"),
}


@pytest.mark.parametrize(("parts", "message"), WRONG_TOKENIZERS.values(), ids=WRONG_TOKENIZERS)
def test_a_tokenizer_that_cannot_tokenize_is_refused_before_it_reads_the_texts(folder, parts, message):
    with pytest.raises(UserError, match=message):
        load_tokenizer(with_tokenizer(folder, **parts), VOCABULARY)


def test_tokenizer_pads_with_the_end_of_text(folder):
    tokenizer = load_tokenizer(folder, VOCABULARY)
    assert tokenizer.pad_token == tokenizer.eos_token
    (ids,) = tokenize([TEXT], tokenizer, tokens=16)
    assert len(ids) == 16
    assert tokenizer.decode(ids) == TEXT[: len(tokenizer.decode(ids))]


def test_tokenizer_that_is_missing_is_refused(folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(UserError, match="tokenizer"):
        load_tokenizer(folder, VOCABULARY)


@pytest.mark.parametrize(
    ("vocab_size", "message"), [(100, "the model only 100"), (50304, "missing or belong to another model")]
)
def test_tokenizer_of_another_model_is_refused(folder, vocab_size, message):
    with pytest.raises(UserError, match=message):
        load_tokenizer(folder, vocab_size)


# Models of our own.

SHAPE = GPTShape(vocab_size=310, context=16, d_model=8, n_layers=2, n_heads=2)


def save_own(path: Path, **metadata: str):
    model = GPT(SHAPE, seed=3)
    arrays = {name: value.detach().numpy() for name, value in model.named_parameters()}
    write(path, arrays, {name: str(size) for name, size in vars(SHAPE).items()} | metadata)
    return model


def test_our_own_model_against_its_logits(tmp_path):
    model = save_own(tmp_path / "step-1.safetensors")
    loaded = load_model(tmp_path / "step-1.safetensors")
    assert (loaded.vocab_size, loaded.context) == (310, 16)
    found = forward_pass(loaded, TEXTS, all_layers=True)
    for row, text in enumerate(TEXTS):
        tokens = torch.tensor([text])
        with torch.no_grad():
            logits, hidden = model(tokens), model.hidden_states(tokens)
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:], reduction="sum")
        assert found.cross_entropies[row] == pytest.approx(loss.item(), rel=1e-5)
        np.testing.assert_allclose(found.embeddings["all"][row], hidden[0].mean(0), rtol=0, atol=3e-6)
    assert list(found.embeddings) == ["hidden.00", "hidden.01", "hidden.02", "all"]


def test_our_own_model_in_bfloat16(tmp_path):
    save_own(tmp_path / "step-1.safetensors")
    exact, rounded = (
        forward_pass(load_model(tmp_path / "step-1.safetensors", dtype=dtype), TEXTS).perplexity
        for dtype in ("float32", "bfloat16")
    )
    assert rounded == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"n_heads": "many"}, "does not give the sizes"),
        ({"n_layers": "3"}, "another model"),
        ({"n_layers": "1"}, "another model"),
        ({"context": str(1 << 31)}, "another model"),
    ],
)
def test_our_own_model_with_the_wrong_sizes(tmp_path, metadata, message):
    save_own(tmp_path / "step-1.safetensors", **metadata)
    with pytest.raises(UserError, match=message):
        load_model(tmp_path / "step-1.safetensors")


SIZES = {"vocab_size": VOCABULARY, "hidden_size": 16}
DECODER = {
    **SIZES,
    **{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32},
}
ARCHITECTURES = {
    # No scaled-dot-product attention in transformers, or none for some of them.
    "BloomConfig": {**SIZES, "n_layer": 2, "n_head": 2},
    "GPTNeoConfig": {**SIZES, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]},
    "GPTJConfig": {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4},
    "MptConfig": {"vocab_size": VOCABULARY, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_seq_len": 64},
    "MambaConfig": {**SIZES, "num_hidden_layers": 2, "state_size": 4},
    # Logits that are capped, divided, multiplied. A cap as small as theirs are large shows whether it is applied.
    "Gemma2Config": {**DECODER, "head_dim": 8, "final_logit_softcapping": 0.05},
    "GraniteConfig": {**DECODER, "logits_scaling": 8.0},
    "CohereConfig": {**DECODER, "logit_scale": 0.0625},
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures_against_transformers_own_loss(tmp_path, name):
    torch.manual_seed(0)
    config = getattr(transformers, name)(**ARCHITECTURES[name])
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)  # so that the logits differ from token to token
    model.save_pretrained(tmp_path)
    found = forward_pass(load_model(tmp_path), TEXTS)
    for row, text in enumerate(TEXTS):
        with torch.inference_mode():
            loss = model(torch.tensor([text]), labels=torch.tensor([text])).loss.item()
        assert found.cross_entropies[row] == pytest.approx(loss * (len(text) - 1), rel=1e-5)


LARGE = 1 << 31
TOO_LARGE = {
    "layers": ("GPTNeoXConfig", {"num_hidden_layers": 5000}, "num_hidden_layers: 5000"),
    "layers of a list": ("Gemma2Config", {"num_hidden_layers": 5000}, "num_hidden_layers: 5000"),
    "vocabulary": ("GPTNeoXConfig", {"vocab_size": LARGE}, f"{LARGE} x 16"),
    "width": ("GPTNeoXConfig", {"hidden_size": 1 << 20, "intermediate_size": 1 << 20}, " x 1048576"),
    "positions": ("GPT2Config", {"n_positions": LARGE}, f"wpe.weight, {LARGE} x 16"),
    "positions of a mask": ("GPTJConfig", {"n_positions": LARGE}, "masks and tables of"),
    "experts": ("MixtralConfig", {"num_local_experts": 1 << 20}, "num_local_experts: 1048576"),
    "experts, as many as words": ("MixtralConfig", {"num_local_experts": VOCABULARY}, "experts.*, 320 x"),
    "experts in lists": ("JambaConfig", {"num_experts": 5000}, "num_experts: 5000"),
}
OF_SIZES = ARCHITECTURES | {
    "GPTNeoXConfig": {**SIZES, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
    "GPT2Config": {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "MixtralConfig": {**DECODER, "num_local_experts": 4},
    "JambaConfig": {**DECODER, "num_experts": 4, "use_mamba_kernels": False},
}


@pytest.mark.parametrize("load", [load_model, partial(load_model, differentiable=True)])
@pytest.mark.parametrize(("name", "changes", "message"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_sizes_that_the_files_cannot_hold_are_refused_before_memory_is_asked_for(
    tmp_path, name, changes, message, load
):
    AutoModelForCausalLM.from_config(getattr(transformers, name)(**OF_SIZES[name])).save_pretrained(tmp_path)
    load(tmp_path)
    edit_config(tmp_path, **changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=message):
        load(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
