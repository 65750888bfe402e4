"""What `make` is about to download, in a line or two, before it starts. It runs before anything is installed."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping

# MB of the wheels that requirements.lock names: Linux, x86-64, CPython 3.11.
WITHOUT_TORCH = 230
TORCH_CPU = 190

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def announcement(system: str, machine: str, has_gpu: bool, environment: Mapping[str, str]) -> str:
    """What is downloaded and, where CUDA would come to a machine without a GPU, how to do without it."""
    names = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
    chosen = any("cpu" in environment.get(name, "") for name in names)
    text = "Installing what requirements.lock pins, once. To download: "
    if system != "Linux" or machine != "x86_64" or chosen:
        return text + f"about {WITHOUT_TORCH + TORCH_CPU} MB."
    text += f"about {WITHOUT_TORCH} MB, and PyTorch with CUDA, which is gigabytes."
    if not has_gpu:
        text += f"\nThis machine has no GPU. PyTorch without CUDA is {TORCH_CPU} MB: "
        text += f"make run PIP_EXTRA_INDEX_URL={CPU_INDEX}"
    return text


if __name__ == "__main__":
    gpu = shutil.which("nvidia-smi") is not None
    print(announcement(platform.system(), platform.machine(), gpu, os.environ), file=sys.stderr)
