"""`make check-gpu`: what it calls agreement, and what it says where there is no GPU."""

import subprocess
import sys

import pytest
import torch

from benchmarks import check_gpu
from paths import ROOT


def test_a_device_agrees_with_itself(monkeypatch):
    monkeypatch.setattr(check_gpu, "STEPS", 5)
    monkeypatch.setattr(check_gpu.trained, "__defaults__", (5,))
    lines = list(check_gpu.compare(torch.device("cpu")))
    assert all(agrees for agrees, _ in lines)
    assert len(lines) == 4
    assert "largest difference 0, limit 0.0001: ok" in lines[0][1]
    assert "largest difference 0, limit 1e-05: ok" in lines[2][1]


@pytest.mark.parametrize(
    ("ours", "theirs", "difference", "worst"),
    [
        ({"a": 1.0, "b": 200.0}, {"a": 1.0, "b": 201.0}, 1 / 200, "b"),
        ({"a": 0.1, "b": 3.0}, {"a": 0.2, "b": 3.0}, 0.1, "a"),
        ({"a": float("nan"), "b": 3.0}, {"a": float("nan"), "b": 3.0}, 0.0, "a"),
    ],
)
def test_differences_are_relative_above_one_and_absolute_below(ours, theirs, difference, worst):
    found, name = check_gpu.largest_difference(ours, theirs)
    assert found == pytest.approx(difference)
    assert name == worst


def test_nan_on_one_side_is_no_agreement():
    difference, worst = check_gpu.largest_difference({"a": 9.0, "b": 1.0}, {"a": 1.0, "b": float("nan")})
    assert worst == "b"
    assert not check_gpu.verdict("features", difference, 1e-5)[0]
    assert not check_gpu.verdict("losses", 1.1e-4, 1e-4)[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so_in_a_line():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.check_gpu"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "no GPU: PyTorch sees no CUDA device here, so there is nothing to compare\n"
    assert done.stderr == ""
