"""What goes wrong on the way costs no finished work and gives no wrong number.

Every kill is planted at one moment (see `planted/sitecustomize.py`), and every rerun is compared with an undisturbed run
of the same small configuration, byte for byte.
"""

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from base64 import urlsafe_b64encode

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import faults
from faults import TARGET
from loaded import PATIENCE
from toposcale.io import tensor_files

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("faults")]

STEP = "step-0000000"
FEATURES_TABLE = urlsafe_b64encode(b"results/small/tables/features.parquet").decode()
# Moments in the order in which a run reaches them: where, at what, who is killed, and which files that were there are
# made again. "both" is a power cut; a job outlives a "snakemake" that is killed alone, and ends while nobody listens.
MOMENTS = [
    ("job", "os.rename", rf"checkpoints/one/{STEP}2\.safetensors$", "self", "nothing"),
    ("job", "os.rename", rf"metrics/training/one/{STEP}2\.parquet$", "both", r"one/step-00000002\."),
    ("job", "os.rename", rf"diagrams/weights/one/{STEP}2\.parquet$", "snakemake", rf"weights/one/{STEP}2\."),
    ("snakemake", "open", rf"\.snakemake/metadata/{FEATURES_TABLE}$", "self", r"tables/features\."),
    ("job", "os.rename", r"tables/scaling\.parquet$", "self", "nothing"),
    ("job", "os.rename", r"tables/scaling\.csv$", "snakemake", r"tables/scaling\."),
]


def identities(workspace):
    """Every whole file of a run: which file it is on the disk, and when it was written."""
    return {
        str(path.relative_to(workspace.results)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for folder in ("corpus", "checkpoints", "features", "diagrams", "training", "metrics", "tables")
        for path in (workspace.results / folder).rglob("[!.]*")
        if path.is_file() and "unfinished" not in path.parts
    }


def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bytes(undisturbed, tmp_path):
    """Kill -9 of a training, a feature and an analysis job and of Snakemake itself, one after the other in one run."""
    workspace = faults.smallest(tmp_path / "work")
    before, redone, locked = {}, "nothing", False
    for where, event, path, victim, made_again in [*MOMENTS, (None, None, None, None, "nothing")]:
        fault = where and {"where": where, "event": event, "path": path, "victim": victim}
        # One job at a time, so that only the killed one is unfinished.
        status, said = faults.run(workspace, TARGET, fault=fault)
        assert faults.complaints(said) == []
        if where is None:
            assert status == 0, said
        elif (where, victim) == ("job", "self"):
            assert status == 1
            assert "SIGKILL" in said
        else:
            assert status == -signal.SIGKILL, (fault, said)
            if not locked:
                status, said = faults.run(workspace, TARGET)
                assert status == 1
                assert "It can be removed with the --unlock argument" in said
                locked = True
            assert faults.run(workspace, "--unlock")[0] == 0
        now = identities(workspace)
        changed = [name for name in before if now.get(name) != before[name]]
        assert [name for name in changed if not re.search(redone, name)] == [], path
        before, redone = now, made_again
    faults.assert_same_bytes(workspace, undisturbed)


def test_two_runs_in_one_folder_and_a_job_that_outlives_its_snakemake(undisturbed, copy):
    features = copy.results / "features" / "weights" / "one" / f"{STEP}2.parquet"
    features.unlink()
    reached, hold = copy.path / "reached", copy.path / "hold"
    os.mkfifo(reached)
    os.mkfifo(hold)
    fault = {"where": "job", "event": "os.rename", "path": "/features/weights/", "victim": "hold"}
    targets = (TARGET, str(features.relative_to(copy.path)))
    first = faults.start(copy, *targets, fault={**fault, "reached": str(reached), "hold": str(hold)})
    with os.fdopen(os.open(reached, os.O_RDONLY | os.O_NONBLOCK)) as pipe:
        while first.poll() is None and not select.select([pipe], [], [], 1)[0]:
            pass
        assert first.poll() is None, "the run ended before its job was held up"
        while not (word := pipe.read()):
            pass
    assert word == "reached"

    status, said = faults.run(copy, *targets)
    assert status == 1
    assert "Directory cannot be locked" in said
    assert not features.exists()

    # The first Snakemake dies; its job is still there, with half a file, when the next run comes to the same job.
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert faults.run(copy, "--unlock")[0] == 0
    second = faults.start(copy, *targets)
    lines = iter(second.stdout.readline, "")
    assert any("Topology of the weights of one, step-00000002" in line for line in lines)
    hold.write_text("go on")
    rest, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, rest
    first.communicate(timeout=PATIENCE)
    faults.assert_same_bytes(copy, undisturbed)


# Disks.


def in_a_mount_namespace(script):
    """What a shell script prints that may mount what it likes without anybody else seeing it."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare here to mount a disk with")
    command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, check=False).returncode:
        pytest.skip("no right here to mount a disk")
    done = subprocess.run(
        [*command, "sh", "-ec", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout


def test_a_full_disk_is_one_line_and_the_rerun_completes(undisturbed, copy):
    part = f"results/small/features/weights/one/{STEP}2.parquet"
    run, again = (shlex.join(copy.command(part)), shlex.join(copy.command("--quiet", "all", "--", TARGET, part)))
    said = in_a_mount_namespace(f"""
        cd {shlex.quote(str(copy.path))}
        mv results whole && mkdir results && mount -t tmpfs -o size=2m none results && cp -a whole/. results
        rm {part} results/small/tables/*
        dd if=/dev/zero of=results/ballast bs=4096 2> /dev/null || true
        {run} || echo "ended with status $?"
        test ! -e {part} && test -z "$(find results -name '.unfinished*')" && echo "nothing half-written"
        rm results/ballast
        {again}
        cp -a results/. whole && umount results && rmdir results && mv whole results
    """)
    first, ended, _ = said.partition("ended with status 1")
    assert ended
    # The disk took the file for the cause, and not its text.
    line, last = faults.complaints(first)
    assert last == "toposcale: results/small: no room to write; make room and run again"
    assert re.fullmatch(
        rf"toposcale: weight_features: results/small/(features|diagrams)/weights/one/{STEP}2\.parquet: "
        r"not written \(no space left.*\); make room .*",
        line,
    )
    assert "nothing half-written" in said
    faults.assert_same_bytes(copy, undisturbed)


def test_read_only_results_are_one_line(copy):
    (copy.results / "tables" / "scaling.parquet").unlink()
    run, results = shlex.join(copy.command(TARGET)), shlex.quote(str(copy.path / "results"))
    said = in_a_mount_namespace(f"mount --bind {results} {results}; mount -o remount,bind,ro {results}; {run}")
    assert "Traceback" not in said
    assert f"{copy.path}/results/small: a run writes there, but it is read-only" in said


# Damage.


def flip(path):
    """Change one bit of the numbers that a file holds: a small table has its settings, as text, behind them."""
    content = bytearray(path.read_bytes())
    content[100 if path.suffix == ".parquet" else len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def edit(path):
    """Leave out a row and keep all else: metadata, and the time of the file."""
    status, data = path.stat(), pq.read_table(path)
    pq.write_table(data.slice(1), path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("damage", "targets"),
    [
        (
            {f"checkpoints/one/{STEP}0.safetensors": cut, f"checkpoints/one/{STEP}2.safetensors": flip},
            [f"features/weights/one/{STEP}0.parquet", f"features/weights/one/{STEP}2.parquet"],
        ),
        (
            {f"features/weights/one/{STEP}2.parquet": cut, f"metrics/training/one/{STEP}2.parquet": flip},
            ["tables/features.parquet", "tables/metrics.parquet"],
        ),
        (
            {f"features/weights/one/{STEP}2.parquet": edit, f"metrics/training/one/{STEP}2.parquet": edit},
            ["tables/features.parquet", "tables/metrics.parquet"],
        ),
        ({"tables/features.parquet": flip}, ["tables/scaling.parquet"]),
        ({"tables/features.parquet": edit}, ["tables/scaling.parquet"]),
    ],
    ids=["checkpoint", "part", "edited part", "table", "edited table"],
)
def test_a_damaged_file_is_named_and_never_averaged_in(copy, damage, targets):
    for name, harm in damage.items():
        harm(copy.results / name)
    targets = [f"results/small/{target}" for target in targets]
    for target in targets:
        (copy.path / target).unlink(missing_ok=True)
    # Snakemake would make a damaged file again if it could tell that it is one; here the jobs that read it must.
    readers = ["weight_features", "features_table", "metrics_table", "scaling"]
    # One core: two jobs that fail at once may write into one line.
    status, said = faults.run(copy, "--keep-going", "--allowed-rules", *readers, "--", *targets)
    assert status == 1, said
    lines = faults.complaints(said)
    assert len(lines) == len(damage), said
    for name in damage:
        assert len([line for line in lines if f"results/small/{name}" in line and "delete it" in line]) == 1, lines
    assert not [target for target in targets if (copy.path / target).exists()]


def test_a_table_that_was_cut_is_named_where_no_job_reads_it(copy):
    cut(copy.results / "tables/features.parquet")
    status, said = faults.run(copy, "compared")
    assert status == 1, said
    assert "features.parquet: not a readable Parquet file" in faults.complaints(said)[0]


def test_what_was_deleted_is_made_again_with_the_same_bytes(undisturbed, copy):
    copy.snakemake(TARGET, "measured")
    deleted = [
        f"{name}/{STEP}2.{suffix}"
        for name, suffix in (("checkpoints/one", "safetensors"), ("diagrams/weights/one", "parquet"))
    ] + [f"features/weights/one/{STEP}0.parquet", f"metrics/training/one/{STEP}4.parquet", "training/one.parquet"]
    for name in deleted:
        (copy.results / name).unlink()
    copy.snakemake(TARGET, "measured")
    assert [name for name in deleted if not (copy.results / name).exists()] == []
    faults.assert_same_bytes(copy, undisturbed)


def test_nan_weights_are_rows_of_nan_and_a_warning_and_the_run_goes_on(undisturbed, tmp_path):
    workspace = faults.smallest(tmp_path / "work")
    folder = workspace.path / "given"
    shutil.copytree(undisturbed.results / "checkpoints" / "one", folder, ignore=shutil.ignore_patterns(".*"))
    arrays, metadata = tensor_files.read(folder / f"{STEP}2.safetensors")
    name = min(name for name, array in arrays.items() if array.ndim == 2)
    arrays[name] = np.full_like(arrays[name], np.nan)
    tensor_files.write(folder / f"{STEP}2.safetensors", arrays, metadata)
    given = {"kind": "folder", "path": "given", "pattern": "step-{step}.safetensors", "tokens_per_step": 16}
    workspace.config["models"] = {"given": given}
    workspace.config["embeddings"] = {"repeats": 0, "texts": 20}
    tables = [f"results/small/tables/{name}.parquet" for name in ("features", "correlations", "warnings")]
    status, said = faults.run(workspace, *tables)
    assert faults.complaints(said) == []
    assert status == 0, said
    features = pd.read_parquet(workspace.results / "tables" / "features.parquet")
    damaged = (features["step"] == 2) & ((features["layer"] == name) | (features["source"] == "embeddings"))
    assert features[damaged]["value"].isna().all()
    assert features[features["step"] == 0]["value"].notna().all()
    warnings = pd.read_parquet(workspace.results / "tables" / "warnings.parquet")
    assert warnings.query("model == 'given' and steps == '2'")["warning"].str.contains("features are NaN").any()


# The last line.


def test_the_last_line_of_a_failure_is_its_cause(undisturbed, copy):
    (copy.path / "train.txt").write_bytes(b"\xff\xfe" * 100)
    done = copy.snakemake(check=False)
    assert done.returncode != 0
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("toposcale: corpus: ")
    assert "train.txt" in last


def test_ctrl_c_says_interrupted(copy):
    """While a job is at work. In the instant in which Snakemake starts one, its own scheduler prints a traceback first."""
    copy.config["training"] |= {"steps": 200_000, "checkpoint_every": 100_000}
    log = copy.results / "logs/train/one/step-00100000.log"
    process = subprocess.Popen(
        copy.command(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + PATIENCE
    while not log.exists() or not log.stat().st_size:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    said = process.stderr.readlines()
    assert process.wait(timeout=PATIENCE) != 0
    assert said[-1].startswith("toposcale: interrupted"), "".join(said[-20:])
    assert "Traceback" not in "".join(said)
