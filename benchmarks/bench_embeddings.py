"""The forward pass compared with full logits with cross_entropy at the shape of Pythia-70M, in CPU seconds and in memory.

And the memory that the weight features of such a checkpoint take. Weights and texts are random; memory is the peak of a
process that does nothing else.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Row

VOCABULARY, WIDTH, LAYERS, HEADS = 50304, 512, 6, 8
N_TEXTS, BATCH, LONGEST = 64, 32, 128


def rows() -> Iterator[Row]:
    """Rows for the table of `make bench`; limits: 1.7 times the speed, a third of the memory, and 2 GB."""
    model, texts = random_model(), random_texts()
    tokens = sum(map(len, texts))
    ours, reference = cpu_seconds_in_turn(lambda: one_pass(model, texts), lambda: full_logits(model, texts))
    speeds = f"{tokens / ours:.0f} against {tokens / reference:.0f} tokens/s"
    yield Row(f"embeddings, 70M: {speeds}", ours, limit=1 / 1.7, reference=reference)
    yield Row(
        "embeddings, 70M: peak memory / full logits",
        peak_megabytes("one_pass"),
        limit=1 / 3,
        reference=peak_megabytes("full_logits"),
        unit="MB",
    )
    yield Row(
        "weight features of a 70M checkpoint: peak memory", peak_megabytes("weight_features"), limit=2000, unit="MB"
    )


def random_model(width: int = WIDTH, layers: int = LAYERS, heads: int = HEADS, *, seed: int = 0) -> Any:
    """A GPT-NeoX with random weights, of the shape of Pythia-70M if no other is given."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    config = GPTNeoXConfig(vocab_size=VOCABULARY, intermediate_size=4 * width, **sizes)
    return GPTNeoXForCausalLM(config).eval()


def random_texts() -> list[list[int]]:
    """Lengths as of the first 200 long paragraphs of WikiText-2's validation text: 44% cut at 128, 95 on average."""
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(N_TEXTS) < 0.44, LONGEST, rng.integers(25, LONGEST, N_TEXTS))
    return [rng.integers(0, VOCABULARY, length).tolist() for length in lengths]


def one_pass(model: Any, texts: list[list[int]]) -> float:
    """Ours: perplexity, with the embeddings made on the way."""
    from toposcale.checkpoints.language_models import wrap_pretrained
    from toposcale.features.embeddings import forward_pass

    return forward_pass(wrap_pretrained(model, "random"), texts).perplexity


def full_logits(model: Any, texts: list[list[int]]) -> float:
    """As a tutorial writes it: padded batches in the order of the texts, all logits, cross_entropy, mean pooling."""
    import torch
    import torch.nn.functional as F

    total, count = 0.0, 0
    with torch.inference_mode():
        for first in range(0, len(texts), BATCH):
            part = [torch.tensor(text) for text in texts[first : first + BATCH]]
            tokens = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
            mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in part], batch_first=True)
            output = model(tokens, attention_mask=mask, output_hidden_states=True, use_cache=False)
            ((output.hidden_states[-1] * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).numpy()
            labels = tokens.masked_fill(mask == 0, -100)[:, 1:].flatten()
            loss = F.cross_entropy(output.logits[:, :-1].flatten(0, 1), labels, reduction="sum")
            total, count = total + loss.item(), count + int((labels != -100).sum())
    return float(np.exp(total / count))


def weight_features() -> None:
    """A checkpoint of that shape in half precision: every matrix read, and all its features."""
    from toposcale import checkpoints
    from toposcale.features import weights

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        subprocess.run([sys.executable, "-m", "benchmarks.bench_embeddings", "save", str(file)], check=True)
        weights.compute_features(checkpoints.Checkpoint(folder).matrices(), weights.WeightSettings())


def save_checkpoint(file: str) -> None:
    """In a process of its own, whose memory does not count."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    shapes = {"embed_in.weight": (VOCABULARY, WIDTH), "embed_out.weight": (VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        for name, n_out, n_in in (
            ("attention.query_key_value", 3 * WIDTH, WIDTH),
            ("attention.dense", WIDTH, WIDTH),
            ("mlp.dense_h_to_4h", 4 * WIDTH, WIDTH),
            ("mlp.dense_4h_to_h", WIDTH, 4 * WIDTH),
        ):
            shapes[f"gpt_neox.layers.{layer}.{name}.weight"] = (n_out, n_in)
    save_file(
        {name: (0.02 * rng.standard_normal(shape, np.float32)).astype(np.float16) for name, shape in shapes.items()},
        file,
    )


def cpu_seconds_in_turn(*functions: Callable[[], object], rounds: int = 1) -> list[float]:
    """Least CPU seconds of each function, taking turns, after one call of each that does not count."""
    best = [float("inf")] * len(functions)
    for number in range(rounds + 1):
        for index, function in enumerate(functions):
            start = time.process_time()
            function()
            if number:
                best[index] = min(best[index], time.process_time() - start)
    return best


def peak_megabytes(what: str) -> float:
    """Peak resident memory of a process that does nothing else."""
    command = [sys.executable, "-m", "benchmarks.bench_embeddings", what]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def main(what: str, *arguments: str) -> None:
    """One thing in this process, and its peak memory in MB."""
    if what == "save":
        save_checkpoint(*arguments)
        return
    if what == "weight_features":
        weight_features()
    else:
        {"one_pass": one_pass, "full_logits": full_logits}[what](random_model(), random_texts())
    print(own_peak_megabytes())


def own_peak_megabytes() -> float:
    """Peak resident memory of this process; getrusage would start from that of the process which started it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
