"""A tiny GPT-NeoX with random weights at several steps, in every format that weights are published in."""

from __future__ import annotations

import json
from pathlib import Path

REPO = "tests/tiny-neox"
STEPS = (0, 10, 100)
VOCABULARY = 320

TIMEOUT = 0.5  # seconds that a test may lose at each attempt on a stalled server

TEXT = (
    "Persistent homology follows the connected components and the holes of a point cloud as a radius grows. "
    "A language model in training moves its weights, and with them the cloud of its embedded sentences. "
    "The lobster lives on the continental shelf and hides by day in crevices between the rocks. "
    "In the year of the great flood the river rose above the bridge and the town was cut off for weeks. "
)


def save_checkpoints(base: Path) -> dict[str, Path]:
    """A tiny GPT-NeoX saved at each step as safetensors, with its tokenizer, and in shards and as `.bin` at step 0."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator([TEXT], vocab_size=VOCABULARY - 1, show_progress=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token="<|endoftext|>")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = GPTNeoXConfig(vocab_size=VOCABULARY, max_position_embeddings=64, **sizes)
    folders = {}
    for step in STEPS:
        torch.manual_seed(step)
        model = GPTNeoXForCausalLM(config)
        folders[f"step{step}"] = base / f"step{step}"
        model.save_pretrained(base / f"step{step}")
        tokenizer.save_pretrained(base / f"step{step}")
        if step == 0:
            folders["sharded"] = base / "sharded"
            model.save_pretrained(base / "sharded", max_shard_size="20KB")
            tokenizer.save_pretrained(base / "sharded")
    _save_as_bin(folders["step0"], base / "bin", shards=1)
    _save_as_bin(folders["step0"], base / "bin-sharded", shards=2)
    return folders | {"bin": base / "bin", "bin-sharded": base / "bin-sharded"}


def _save_as_bin(source: Path, target: Path, *, shards: int) -> None:
    import torch
    from safetensors.torch import load_file

    target.mkdir()
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            (target / file.name).write_bytes(file.read_bytes())
    state = load_file(source / "model.safetensors")
    # Old files carry masks and rotary tables; they are not weights.
    state["gpt_neox.layers.0.attention.bias"] = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    state["gpt_neox.layers.0.attention.rotary_emb.inv_freq"] = torch.ones(2)
    names = sorted(state)
    if shards == 1:
        torch.save(state, target / "pytorch_model.bin")
        return
    parts = {f"pytorch_model-{i + 1:05d}-of-{shards:05d}.bin": names[i::shards] for i in range(shards)}
    for file_name, keys in parts.items():
        torch.save({key: state[key] for key in keys}, target / file_name)
    index = {"metadata": {}, "weight_map": {key: name for name, keys in parts.items() for key in keys}}
    (target / "pytorch_model.bin.index.json").write_text(json.dumps(index))
