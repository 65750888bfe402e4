"""What is said before anything is downloaded."""

import pytest

from install_size import CPU_INDEX, announcement


def test_a_machine_without_a_gpu_is_told_how_to_do_without_cuda():
    said = announcement("Linux", "x86_64", has_gpu=False, environment={})
    first, second = said.splitlines()
    assert "MB" in first
    assert "CUDA" in first
    assert f"make run PIP_EXTRA_INDEX_URL={CPU_INDEX}" in second


@pytest.mark.parametrize(
    ("system", "machine", "has_gpu", "environment", "cuda"),
    [
        ("Linux", "x86_64", True, {}, True),
        ("Linux", "x86_64", False, {"PIP_EXTRA_INDEX_URL": CPU_INDEX}, False),
        ("Darwin", "arm64", False, {}, False),
        ("Linux", "aarch64", False, {}, False),
    ],
)
def test_whoever_has_a_gpu_or_gets_no_cuda_anyway_reads_one_line(system, machine, has_gpu, environment, cuda):
    said = announcement(system, machine, has_gpu, environment)
    assert len(said.splitlines()) == 1
    assert ("CUDA" in said) == cuda
    assert "MB" in said
