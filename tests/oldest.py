"""The wheel with the oldest packages that pyproject.toml allows, in an environment of its own: `make test-oldest`.

Python 3.11 or 3.12: the oldest NumPy is not there for later ones.
"""

import csv
import io
import json
import math
import re
import shutil
import struct
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def lower_bounds(dependencies: Iterable[str]) -> list[str]:
    """`name==version` for every `name>=version`. ValueError: a dependency without a lower bound."""
    pins = []
    for dependency in dependencies:
        if not (stated := re.match(r"([\w.-]+)>=([\d.]+)", dependency)):
            raise ValueError(f"pyproject.toml: {dependency}: it has no lower bound")
        pins.append(f"{stated[1]}=={stated[2]}")
    return pins


def called(*command: object, folder: Path) -> str:
    """What a command prints; it ends the program where it fails."""
    text = list(map(str, command))
    done = subprocess.run(text, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(text)}\n{done.stdout}{done.stderr}")
    return done.stdout


def copy_distributed(folder: Path) -> None:
    """Copy what the Makefile builds the distributions from, without what an earlier build left there."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    [names] = re.findall(r"^DISTRIBUTED = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in names.split():
        copy = partial(shutil.copytree, ignore=ignored) if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)


def installed(folder: Path) -> Path:
    """The Python of a fresh environment in `folder` that holds the wheel and the oldest packages."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "project").mkdir(parents=True)
    copy_distributed(folder / "project")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env/bin/python"
    pip = python, "-m", "pip", "--quiet", "--disable-pip-version-check"
    called(*pip, "wheel", "--no-deps", "--wheel-dir", folder, folder / "project", folder=folder)
    [wheel] = folder.glob("toposcale-*.whl")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = lower_bounds(project["dependencies"])
    called(*pip, "install", wheel, *pins, folder=folder)
    print(f"{wheel.name} with {', '.join(pins)}")
    return python


def write_checkpoint(path: Path, rows: int) -> None:
    """One matrix, twice the unit matrix, as safetensors."""
    values = [2.0 * (i == j) for i in range(rows) for j in range(rows)]
    data = struct.pack(f"<{len(values)}f", *values)
    entry = {"dtype": "F32", "shape": [rows, rows], "data_offsets": [0, len(data)]}
    header = json.dumps({"layers.0.attn.weight": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def write_curve(path: Path) -> None:
    """A training loss that falls as a power of the step, of 4,000 of 10,000 steps."""
    losses = (f"{step},{2.5 + 8 * step**-0.4:.6f}\n" for step in range(20, 4001, 20))
    path.write_text("step,loss\n" + "".join(losses))


def main() -> None:
    folder = ROOT / "build" / "oldest"
    python = installed(folder)
    toposcale = python, "-m", "toposcale"
    assert "describe" in called(*toposcale, "--help", folder=folder)
    write_checkpoint(folder / "model.safetensors", rows=9)
    described = called(*toposcale, "describe", "model.safetensors", "--all", "--csv", folder=folder)
    rows = csv.DictReader(io.StringIO(described))
    values = {row["feature"]: float(row["value"] or "nan") for row in rows}
    assert math.isclose(values["frobenius_norm"], 6.0)
    assert math.isclose(values["h0_total"], 8 * math.sqrt(8))
    write_curve(folder / "losses.csv")
    plan = "--schedule", "cosine", "--warmup-steps", "500", "--steps", "10000"
    size = "--sizes", "100e6", "--n-parameters", "25e6", "--tokens-per-step", "65536"
    assert "scale up to 100M" in called(*toposcale, "advise", "losses.csv", *plan, *size, folder=folder)
    print("help, describe and advise work")


if __name__ == "__main__":
    main()
