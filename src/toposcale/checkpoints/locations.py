"""Location of a checkpoint: a path of the user's, or the folder of a download, which its manifest names."""

from importlib import import_module
from pathlib import Path
from typing import Any

from toposcale.io.files import read_json


def locate(path: str | Path) -> Path:
    """Return the file or folder of the weights: `path` itself, or the folder of a manifest (`.json`, see `manifests`)."""
    if Path(path).suffix != ".json":
        return Path(path)
    # By name: how a file is fetched is no part of what is measured of it, so no measurement depends on that code.
    folder: Path = import_module("toposcale.checkpoints.manifests").read_manifest(path)
    return folder


def moved(path: str | Path) -> str:
    """Return a sentence on the commits between which the revision at `path` moved; empty if it did not."""
    facts = _manifest(path)
    if "commit_before" not in facts:
        return ""
    return (
        f"{facts['repo']}, revision {facts['revision']}: it was commit {facts['commit_before'][:12]} when it was fetched "
        f"first, and {facts['commit'][:12]} when it was fetched again; the second one is measured"
    )


def readable(message: str, path: str | Path) -> str:
    """Return a message with the repository and revision of a download in place of its folder in the cache."""
    facts = _manifest(path)
    if "folder" not in facts:
        return message
    name = f"{facts['repo']}, revision {facts['revision']}"
    return message.replace(f"{facts['folder']}/", f"{name}: ").replace(facts["folder"], name)


def _manifest(path: str | Path) -> dict[str, Any]:
    """Read the manifest of a download; return an empty one if `path` is not a manifest."""
    return read_json(path) if Path(path).suffix == ".json" else {}
