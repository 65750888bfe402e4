"""What jobs ask for: more memory and time for a larger checkpoint, known before a job starts; and their cores."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

pytestmark = pytest.mark.workflow

MILLION = 1_000_000


def sparse(path, shapes):
    """A safetensors file with a whole header and nothing but a hole for its values."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def asked(workspace, wanted):
    """Memory in MB, minutes and cores that a dry run names for a rule; it names them only for rules without a message."""
    (workspace.path / "Snakefile").write_text(
        f"include: {str(workspace.home / 'Snakefile')!r}\nfor one in workflow.rules:\n    one.message = None\n"
    )
    plain = replace(workspace, home=workspace.path)
    shutil.copytree(workspace.home / "profiles", workspace.path / "profiles", dirs_exist_ok=True)
    said = plain.snakemake("--dry-run", "--verbose", "--", "tables", cores=2).stdout
    [block] = re.findall(rf"^rule {wanted}:\n((?:    .*\n)+)", said, re.MULTILINE)
    return tuple(
        int(found[1]) if (found := re.search(rf"\b{name}[=:] ?(\d+)", block)) else None
        for name in ("mem_mb", "runtime", "threads")
    )


def test_a_large_checkpoint_asks_for_more(workspace):
    folder = workspace.path / "mine"
    folder.mkdir()
    workspace.config["models"] = {"mine": {"kind": "folder", "path": str(folder)}}
    workspace.config["weights"] = {"threads": 2}
    save_file({"a": np.eye(3, dtype=np.float32)}, folder / "step1.safetensors")
    memory, minutes, threads = asked(workspace, "weight_features")
    assert (memory, minutes, threads) == (1000, 30, 2)
    (folder / "step1.safetensors").unlink()
    # 200 million weights, 50 million of them in one matrix, which takes 400 MB in float64.
    shapes = {"large": (50_000, 1000), **{f"layer.{k}": (5000, 1000) for k in range(30)}}
    sparse(folder / "step1.safetensors", shapes)
    memory, minutes, _ = asked(workspace, "weight_features")
    assert 1000 + 1.5 * 400 <= memory <= 1000 + 4 * 400
    assert minutes > 30


def test_more_threads_change_no_topology_and_spectra_to_ten_digits(workspace, tmp_path):
    folder = workspace.path / "mine"
    folder.mkdir()
    random = np.random.default_rng(0)
    save_file({"a": random.standard_normal((700, 300)).astype(np.float32)}, folder / "step1.safetensors")
    workspace.config["models"] = {"mine": {"kind": "folder", "path": str(folder)}}
    target = f"results/{workspace.config['run']}/features/weights/mine/step-{1:08d}.parquet"
    found = {}
    for threads in (1, 2):
        workspace.config["weights"] = {"threads": threads}
        workspace.snakemake("--forcerun", "weight_features", "--", target)
        found[threads] = pd.read_parquet(workspace.path / target).set_index(["layer", "feature"])["value"]
    one, two = found[1], found[2]
    assert list(one.index) == list(two.index)
    np.testing.assert_allclose(two, one, rtol=1e-10)
    topology = [key for key in one.index if key[1].startswith(("h0_", "h1_", "neural_"))]
    assert topology
    assert (one[topology] == two[topology]).all()
