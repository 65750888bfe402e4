"""Attention matrices by head: which rows and columns are a head's is asked of the models themselves."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, OPTConfig

import toposcale
from toposcale import checkpoints
from toposcale.checkpoints.heads import Heads
from toposcale.features import weights
from toposcale.io.errors import UserError

SIZES = {"vocab_size": 32}
BLOCK = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4}
CONFIGURATIONS = {
    "gpt2": GPT2Config(n_positions=16, n_embd=24, n_layer=1, n_head=4, **SIZES),
    "llama": LlamaConfig(intermediate_size=32, num_key_value_heads=2, **BLOCK, **SIZES),
    "gpt_neox": GPTNeoXConfig(intermediate_size=32, **BLOCK, **SIZES),
    "opt": OPTConfig(ffn_dim=32, word_embed_proj_dim=24, max_position_embeddings=16, **BLOCK, **SIZES),
    "bloom": BloomConfig(hidden_size=24, n_layer=1, n_head=4, **SIZES),
}
TOKENS = torch.arange(8)[None]


@pytest.fixture(params=sorted(CONFIGURATIONS))
def saved(request, tmp_path):
    """A model, and the folder that it was saved in."""
    torch.manual_seed(1)
    config = CONFIGURATIONS[request.param]
    config._attn_implementation = "eager"  # what tells its attentions
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.3)
    model.save_pretrained(tmp_path)
    return model, tmp_path


def heads_of(folder):
    """Every head of the checkpoint by name: a view that writes into the matrices of the second value."""
    whole = {name: np.array(matrix) for name, matrix in checkpoints.iterate_matrices(folder)}
    split = checkpoints.with_heads(whole.items(), checkpoints.head_counts(folder))
    return {name: matrix for name, matrix in split if ".head-" in name}, whole


def loaded(model, whole):
    """The model with other matrices (n_out, n_in) under its names."""
    state = model.state_dict()
    for name, values in whole.items():
        if name not in state:
            continue  # the scores of tokens, which transformers calls otherwise
        tensor = torch.from_numpy(values)
        state[name] = tensor if state[name].shape == tensor.shape else tensor.T
        if model.config.model_type == "gpt2" and name.endswith("attn.c_proj.weight"):
            state[name] = tensor.T  # square, and stored as (n_in, n_out)
    model.load_state_dict(state)
    return model


def is_of(name, part):
    return f".{part}.head-" in name or f".{part[0]}_proj.head-" in name


def test_a_head_without_queries_attends_to_all_alike_and_the_others_as_before(saved):
    model, folder = saved
    with torch.no_grad():
        before = model(TOKENS, output_attentions=True).attentions[0][0]
    split, whole = heads_of(folder)
    queries = {name: rows for name, rows in split.items() if is_of(name, "query")}
    assert len(queries) == 4
    last = len(TOKENS[0]) - 1
    for number, (name, rows) in enumerate(queries.items()):
        assert name.endswith(f"head-{number:02d}.weight")
        assert rows.shape == (6, 24)
        kept = rows.copy()
        rows[:] = 0
        with torch.no_grad():
            after = loaded(model, whole)(TOKENS, output_attentions=True).attentions[0][0]
        rows[:] = kept
        others = [head for head in range(4) if head != number]
        torch.testing.assert_close(after[others], before[others])
        if model.config.model_type != "bloom":  # whose distances count without any query
            torch.testing.assert_close(after[number, last], torch.full((last + 1,), 1 / (last + 1)))
        assert not torch.allclose(after[number], before[number], atol=1e-3)


def test_the_columns_of_a_head_without_values_change_nothing(saved):
    model, folder = saved
    split, whole = heads_of(folder)
    values = {name: rows for name, rows in split.items() if is_of(name, "value")}
    outputs = [rows for name, rows in split.items() if not any(is_of(name, p) for p in ("query", "key", "value"))]
    assert len(outputs) == 4
    shared = len(outputs) // len(values)
    list(values.values())[1][:] = 0
    # Not one number for all: a layer norm would take it out again.
    noise = np.random.default_rng(0).standard_normal((24, 6)).astype(np.float32)
    with torch.no_grad():
        before = loaded(model, whole)(TOKENS).logits
        for columns in outputs[shared : 2 * shared]:
            assert columns.shape == (24, 6)
            columns += noise
        torch.testing.assert_close(loaded(model, whole)(TOKENS).logits, before)
        outputs[0][:] += noise
        assert not torch.allclose(loaded(model, whole)(TOKENS).logits, before, atol=1e-3)


def test_heads_are_layers_and_the_whole_model_stays_as_it_is(saved):
    model, folder = saved
    settings = weights.WeightSettings(features=("topology", "norms"))
    plain, _ = weights.compute_features(checkpoints.iterate_matrices(folder), settings, model="m")
    split = checkpoints.with_heads(checkpoints.iterate_matrices(folder), checkpoints.head_counts(folder))
    found, diagrams = weights.compute_features(split, settings, model="m")
    assert {layer: found[layer] for layer in plain} == plain
    heads = found.keys() - plain.keys()
    assert len(heads) == (12 if model.config.model_type == "llama" else 16)
    assert heads < diagrams.keys()
    # The norms of the heads of a matrix make up its own.
    [output] = [
        layer for layer in plain
        if f"{layer.removesuffix('.weight')}.head-00.weight" in heads and "q_" not in layer
        and "k_" not in layer and "v_" not in layer
    ]  # fmt: skip
    own = [found[layer]["frobenius_norm"] for layer in heads if layer.startswith(output.removesuffix("weight"))]
    assert np.linalg.norm(own) == pytest.approx(found[output]["frobenius_norm"])


def test_describe_tells_the_heads_of_a_folder(tmp_path):
    model = AutoModelForCausalLM.from_config(CONFIGURATIONS["gpt2"])
    model.save_pretrained(tmp_path)
    table = toposcale.describe(tmp_path, layers="*c_attn.key.head-02*", heads=True, features=("norms",))
    [own] = table.query("layer != 'all' and feature == 'frobenius_norm'")["value"]
    keys = model.transformer.h[0].attn.c_attn.weight.detach().numpy()[:, 24 + 12 : 24 + 18]
    assert own == pytest.approx(np.linalg.norm(keys.astype(np.float64)))
    with pytest.raises(UserError, match="of a file or a folder alone"):
        toposcale.describe(model, heads=True)


def test_the_heads_of_the_projects_own_gpt(tmp_path):
    from toposcale.training.gpt import GPT, GPTShape

    gpt = GPT(GPTShape(20, 8, 12, 1, 3), seed=1)
    matrix = gpt.blocks[0].attention.qkv.weight.detach().numpy()
    found = dict(checkpoints.with_heads([("blocks.0.attention.qkv.weight", matrix)], Heads(3, 3)))
    assert len(found) == 10
    assert np.array_equal(found["blocks.0.attention.qkv.value.head-01.weight"], matrix[24 + 4 : 24 + 8])


@pytest.mark.parametrize("told", ["{}", '{"num_attention_heads": null}', "[1]", "", "[" * 10**5 + "]" * 10**5], ids=len)
def test_an_unknown_number_of_heads_is_one_line(tmp_path, told):
    save_file({"a": np.eye(3)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(told)
    with pytest.raises(UserError, match=r"number of attention heads; set weights\.layers\.heads: false"):
        checkpoints.head_counts(tmp_path)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("h.0.attn.c_attn.weight", (14, 10)),  # heads that share keys and values
        ("h.0.self_attn.q_proj.weight", (7, 10)),
    ],
)
def test_what_the_heads_do_not_divide_stays_whole(name, shape):
    with pytest.warns(RuntimeWarning, match="is not split by head"):
        found = list(checkpoints.with_heads([(name, np.ones(shape))], Heads(2, 2)))
    assert [one for one, _ in found] == [name]
