"""A whole run over published checkpoints of true size, with a bounded disk: random weights of pythia-70m's shapes.

    PYTHONPATH=tests/hub python -m benchmarks.published_run [--checkpoints 16] [--resident 3] [--cores 2]

The checkpoints are served by the small Hub of the tests on this machine, so the time of the network is left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from small_hub import Repository, SmallHub
from tiny_model import save_checkpoints

ROOT = Path(__file__).resolve().parents[1]
REPO = "benchmarks/pythia-70m-shape"
SIZES = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048}


def main() -> None:
    """Serve, run, and print what was on the disk and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=int, default=16)
    parser.add_argument("--resident", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder, SmallHub() as hub:
        work = Path(folder)
        steps = [1000 * number for number in range(arguments.checkpoints)]
        hub.repositories[REPO] = Repository({f"step{step}": checkpoint(work, step) for step in steps}, {})
        on_disk: list[int] = []
        hub.watch = lambda path: on_disk.append(len(weights_in(work / "cache")))
        (work / "config.yaml").write_text(configuration(steps, arguments.resident))
        start = time.perf_counter()
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        command += ["--workflow-profile", str(ROOT / "profiles" / "default"), "--quiet", "all"]
        command += ["--directory", folder, "--configfile", str(work / "config.yaml")]
        done = subprocess.run(
            [*command, "--cores", str(arguments.cores), "--", "measured"],
            env=os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(work / "hf")},
            check=False,
        )
        seconds = time.perf_counter() - start
        fetched = hub.fetched("model.safetensors")
    print(
        f"exit status {done.returncode}; {arguments.checkpoints} checkpoints in {seconds:.0f} s; downloads: {fetched}; "
        f"most checkpoints on the disk: {max(on_disk)}, allowed: {arguments.resident}"
    )


def checkpoint(work: Path, step: int) -> dict[str, bytes]:
    """The files of a checkpoint of random weights in 16 bits, with the tokenizer of the tests' tiny model."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    tokenizer = work / "tokenizer" / "step0"
    if not tokenizer.exists():
        save_checkpoints(work / "tokenizer")
    torch.manual_seed(step)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=50304, max_position_embeddings=2048, **SIZES))
    saved = work / "saved"
    model.half().save_pretrained(saved)
    files = {path.name: path.read_bytes() for path in (*saved.iterdir(), *tokenizer.glob("tokenizer*"))}
    return files


def weights_in(cache: Path) -> list[Path]:
    """The weights that lie in the cache, whole or in part: files of at least a megabyte."""
    return [
        path
        for path in cache.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_size > 1e6
    ]


def configuration(steps: list[int], resident: int) -> str:
    """Weights and embeddings of every checkpoint."""
    return f"""
run: published
models:
  pythia-70m-shape: {{kind: hub, repo: {REPO}, revisions: "step{{step}}", steps: {steps}}}
corpus: {{source: python-docs}}
hub: {{cache: cache, keep: false, resident: {resident}}}
embeddings: {{texts: 50, repeats: 0}}
landscape: {{enabled: false}}
"""


if __name__ == "__main__":
    main()
