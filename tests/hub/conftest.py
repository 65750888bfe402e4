"""The small Hub with a tiny model at several steps, and a client that does not wait between its two attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_hub import Repository, SmallHub
from tiny_model import REPO, STEPS, save_checkpoints


@pytest.fixture(scope="session")
def checkpoint_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by name: a model at each step as safetensors, and that of step 0 sharded and as `.bin`."""
    return save_checkpoints(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="session")
def contents(checkpoint_folders: dict[str, Path]) -> dict[str, dict[str, bytes]]:
    """Files of every folder by name."""
    return {
        name: {file.name: file.read_bytes() for file in folder.iterdir()} for name, folder in checkpoint_folders.items()
    }


@pytest.fixture
def hub(contents: dict[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch):
    """A running small Hub that HF_ENDPOINT points to."""
    branches = {f"step{step}": contents[f"step{step}"] for step in STEPS}
    branches |= {"main": contents["step100"], "neox-ckpt-step10": {"mp_rank_00.pt": b"optimiser"}}
    branches |= {"sharded-step0": contents["sharded"]}
    tags = {"tag-step0": contents["bin"], "shards-step0": contents["bin-sharded"]}
    with SmallHub() as running:
        running.repositories[REPO] = Repository(branches, tags)
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running
