"""A whole run over published checkpoints of true size, with a bounded disk: random weights of Pythia's shapes.

    PYTHONPATH=tests/hub python -m benchmarks.published_run [--model 70m] [--checkpoints 16] [--texts 50] [--cores 2]

The checkpoints are served by the small Hub of the tests on this machine, so the time of the network is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from benchmarks.bench_embeddings import VOCABULARY, random_model
from small_hub import Repository, SmallHub

ROOT = Path(__file__).resolve().parents[1]
REPO = "benchmarks/pythia-shape"
END = "<|endoftext|>"
SIZES = {"70m": (512, 6, 8), "410m": (1024, 24, 16), "1b": (2048, 16, 8)}
"""Width, layers and heads of Pythia's models."""


def main() -> None:
    """Serve, run, and print what was on the disk and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SIZES, default="70m")
    parser.add_argument("--checkpoints", type=int, default=16)
    parser.add_argument("--texts", type=int, default=50)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder, SmallHub() as hub:
        work = Path(folder)
        steps = [1000 * number for number in range(arguments.checkpoints)]
        hub.repositories[REPO] = Repository(
            {f"step{step}": checkpoint(work, step, SIZES[arguments.model]) for step in steps}, {}
        )
        on_disk: list[int] = []
        hub.watch = lambda path: on_disk.append(len(weights_in(work / "results")))
        (work / "config.yaml").write_text(configuration(steps, arguments.texts))
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
        cost = cost_of(work)
    print(
        f"exit status {done.returncode}; {arguments.checkpoints} checkpoints in {seconds:.0f} s; downloads: {fetched}; "
        f"most checkpoints on the disk: {max(on_disk)}, jobs at a time: {arguments.cores}"
    )
    print(cost)


def cost_of(work: Path) -> str:
    """What the most expensive job took, and how many checkpoints have features."""
    costs = [json.loads(path.read_text()) for path in work.glob("results/*/logs/published/**/*.cost.json")]
    seconds, memory = (max(cost[key] for cost in costs) for key in ("cpu_seconds", "peak_memory_mb"))
    features = work.glob("results/*/features/embeddings/*/*.parquet")
    measured = sum(pq.read_metadata(path).num_rows > 0 for path in features)
    return f"{measured} checkpoints measured, at most {seconds:.0f} s of CPU and {memory:.0f} MB each"


def checkpoint(work: Path, step: int, sizes: tuple[int, int, int]) -> dict[str, bytes]:
    """The files of a checkpoint of random weights in 16 bits, with a tokenizer of as many tokens."""
    saved = work / "saved"
    random_model(*sizes, seed=step).half().save_pretrained(saved)
    if not (saved / "tokenizer.json").exists():
        tokenizer().save_pretrained(saved)
    return {path.name: path.read_bytes() for path in saved.iterdir()}


def tokenizer() -> Any:
    """A token for each byte; the other tokens never occur."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
    names += [f"<unused{number}>" for number in range(VOCABULARY - len(names))]
    bytewise = Tokenizer(models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token=END)


def weights_in(cache: Path) -> list[Path]:
    """The weights that lie in the cache, whole or in part: files of more than 10 MB (a tokenizer is less)."""
    return [path for path in cache.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_size > 1e7]


def configuration(steps: list[int], texts: int) -> str:
    """Weights and embeddings of every checkpoint."""
    return f"""
run: published
models:
  pythia-shape: {{kind: hub, repo: {REPO}, revisions: "step{{step}}", steps: {steps}}}
corpus: {{source: python-docs}}
hub: {{cache: cache, keep: false}}
embeddings: {{texts: {texts}, repeats: 0}}
landscape: {{enabled: false}}
"""


if __name__ == "__main__":
    main()
