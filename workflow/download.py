"""What `make` is about to download, in a line or two, before it starts. It runs before anything is installed."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping

# Sizes in MB of the wheels that `pip download -r requirements.lock` fetches: Linux, x86-64, CPython 3.11.
WITHOUT_TORCH = 230
TORCH_CPU = 190
TORCH_CUDA = 2700

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def announcement(system: str, machine: str, has_gpu: bool, environment: Mapping[str, str]) -> str:
    """What is downloaded and, where CUDA would come to a machine without a GPU, how to do without it."""
    chosen = " ".join(
        environment.get(name, "") for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
    )
    cuda = system == "Linux" and machine == "x86_64" and "cpu" not in chosen
    torch = TORCH_CUDA if cuda else TORCH_CPU
    text = f"Installing what requirements.lock pins: about {WITHOUT_TORCH + torch:,} MB to download, once."
    if cuda and not has_gpu:
        text += (
            f"\nThere is no GPU here, and {TORCH_CUDA - TORCH_CPU:,} MB of that are for GPUs; without them: "
            f"make run PIP_EXTRA_INDEX_URL={CPU_INDEX}"
        )
    return text


if __name__ == "__main__":
    gpu = shutil.which("nvidia-smi") is not None
    print(announcement(platform.system(), platform.machine(), gpu, os.environ), file=sys.stderr)
