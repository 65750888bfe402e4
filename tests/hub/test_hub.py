"""The real client libraries against a small Hub: what is found, what is fetched, and how every failure ends."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from small_hub import Fault, Repository, SmallHub, bomb, commit_of
from tiny_model import REPO, STEPS, TEXT, TIMEOUT, VOCABULARY
from toposcale import checkpoints
from toposcale.checkpoints import hub_client, language_models
from toposcale.checkpoints.hub import HubSource
from toposcale.checkpoints.hub_client import HubUnreachableError
from toposcale.checkpoints.manifests import duplicates, read_manifest, write_manifest
from toposcale.features import embeddings
from toposcale.io.errors import DownloadError, LeftOutError, SharedError, UserError


def source(cache: Path, pattern: str = "step{step}", repo: str = REPO) -> HubSource:
    return HubSource(repo, pattern, str(cache), TIMEOUT)


def fetch(cache: Path, step: int = 0, pattern: str = "step{step}") -> Path:
    """The folder of a step."""
    found = source(cache, pattern)
    return found.fetch(found.revision(step))


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def weight_blob(cache: Path) -> Path:
    (link,) = cache.glob("models--*/snapshots/*/model.safetensors")
    return link.resolve()


def damage_weights(cache: Path, damage: str) -> bytes:
    """Truncate, change or remove the weights in the cache; returns what they were."""
    blob = weight_blob(cache)
    whole = blob.read_bytes()
    if damage == "removed":
        blob.unlink()
    else:
        blob.write_bytes(whole[:-7] if damage == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1]))
    return whole


# What is there.


@pytest.mark.usefixtures("hub")
def test_branches_and_tags_are_listed_and_optimiser_states_are_not():
    found = HubSource(REPO, "step{step}").names()
    assert found == ["main", "sharded-step0", "shards-step0", "step0", "step10", "step100", "tag-step0"]


@pytest.mark.usefixtures("hub")
def test_steps_come_from_branches_and_from_tags(tmp_path):
    assert list(source(tmp_path).revisions()) == list(STEPS)
    assert list(source(tmp_path, "tag-step{step}").revisions()) == [0]


@pytest.mark.parametrize("pattern", ["step{step}", "sharded-step{step}", "tag-step{step}", "shards-step{step}"])
@pytest.mark.usefixtures("hub")
def test_every_weight_format_gives_the_same_matrices_and_the_same_model(tmp_path, checkpoint_folders, pattern):
    folder = fetch(tmp_path, 0, pattern)
    expected = {
        name: tensor
        for name, tensor in load_file(checkpoint_folders["step0"] / "model.safetensors").items()
        if tensor.ndim == 2
    }
    found = dict(checkpoints.iterate_matrices(folder))
    assert found.keys() == expected.keys()
    for name, matrix in expected.items():
        np.testing.assert_array_equal(found[name], matrix)
    model = language_models.load_model(folder)
    assert model.vocab_size == VOCABULARY
    assert model.context == 64


@pytest.mark.usefixtures("hub")
def test_from_repository_to_features(tmp_path):
    folder = fetch(tmp_path, 10)
    model = language_models.load_model(folder)
    tokenizer = language_models.load_tokenizer(folder, model.vocab_size)
    texts = embeddings.tokenize(re.findall(r"[^.]+\.", TEXT), tokenizer, tokens=32)
    result = embeddings.forward_pass(model, texts)
    features, diagrams = embeddings.embedding_features(result.embeddings["all"])
    # Weights of standard deviation 0.02 tell nothing: every token is about as likely as any other.
    assert result.perplexity == pytest.approx(VOCABULARY, rel=0.05)
    assert features["h0_count"] == len(texts) - 1
    assert len(diagrams[0]) == len(texts) - 1


def test_equal_weights_are_found_before_anything_is_downloaded(hub, contents, tmp_path):
    branches = hub.repositories[REPO].branches
    branches |= {"step1": contents["step0"], "step50": contents["step100"]}
    assert source(tmp_path).duplicates([0, 1, 10, 50, 100]) == {1: "step0", 50: "step100"}
    assert not any("/resolve/" in path for _, path in hub.requests)


def test_a_step_that_serves_the_final_weights_is_found_when_the_final_step_is_not_wanted(hub, contents, tmp_path):
    hub.repositories[REPO].branches["step10"] = contents["step100"]
    assert source(tmp_path).duplicates([0, 10]) == {10: "main"}


# The cache.


def test_one_format_is_fetched_once(hub, contents, tmp_path):
    hub.repositories[REPO].branches["step0"] = contents["step0"] | contents["bin"] | {"code.py": b"print()"}
    first = fetch(tmp_path)
    assert fetch(tmp_path) == first
    assert hub.fetched("model.safetensors") == 1
    assert hub.fetched("pytorch_model.bin") == 0
    assert hub.fetched("code.py") == 0


@pytest.mark.parametrize("damage", ["truncated", "changed", "removed"])
def test_a_damaged_cached_file_is_fetched_again(hub, tmp_path, damage):
    folder = fetch(tmp_path)
    whole = damage_weights(tmp_path, damage)
    assert fetch(tmp_path) == folder
    assert weight_blob(tmp_path).read_bytes() == whole
    assert hub.fetched("model.safetensors") == 2


@pytest.mark.parametrize("damage", ["truncated", "changed", "removed"])
def test_a_file_that_is_damaged_between_fetching_and_reading_is_fetched_again(hub, tmp_path, damage):
    """Between two jobs of a run: the one that fetches, and one that reads what its manifest names."""
    manifest = tmp_path / "manifest.json"
    write_manifest(manifest, source(tmp_path), 0)
    assert read_manifest(manifest) == fetch(tmp_path)
    whole = damage_weights(tmp_path, damage)
    before = hub.fetched("model.safetensors")
    folder = read_manifest(manifest)
    assert (folder / "model.safetensors").read_bytes() == whole
    assert hub.fetched("model.safetensors") == before + 1


@pytest.mark.usefixtures("hub")
def test_a_file_that_is_damaged_after_fetching_is_named_where_it_cannot_be_fetched(tmp_path, monkeypatch):
    manifest = tmp_path / "manifest.json"
    write_manifest(manifest, source(tmp_path), 0)
    damage_weights(tmp_path, "changed")
    offline(monkeypatch)
    assert "model.safetensors: damaged in the cache" in failure(lambda: read_manifest(manifest))


def test_content_that_is_not_what_the_hub_states_is_refused(hub, monkeypatch, tmp_path):
    monkeypatch.setattr("small_hub.digest_of", lambda name, content: "0" * (64 if "model" in name else 40))
    with pytest.raises(UserError, match=r"step0: .* does not have the content that the Hub states"):
        fetch(tmp_path)


def test_a_cache_holds_a_revision_when_it_has_all_of_its_files(hub, tmp_path):
    found = source(tmp_path)
    assert not found.holds("step0")
    fetch(tmp_path)
    assert found.holds("step0")
    hub.repositories[REPO].move("step0", hub.repositories[REPO].branches["step10"])
    assert not found.holds("step0")
    hub.faults = [Fault("500", "/revision/step0")]
    assert found.holds("step0")


def test_revisions_are_compared_once_a_run_and_the_last_comparison_counts_in_an_outage(hub, contents, tmp_path):
    noted, steps = tmp_path / "duplicates.json", [0, 1, 10]
    hub.repositories[REPO].branches["step1"] = contents["step0"]
    assert duplicates(noted, source(tmp_path), steps, time.time()) == {1: "step0"}
    hub.repositories[REPO].branches["step1"] = contents["step10"]
    assert duplicates(noted, source(tmp_path), steps, 0.0) == {1: "step0"}
    hub.faults = [Fault("500", "/refs")]
    assert duplicates(noted, source(tmp_path), steps, time.time()) == {1: "step0"}
    with pytest.raises(HubUnreachableError):
        duplicates(noted, source(tmp_path), steps[:2], 0.0)
    hub.faults = []
    assert duplicates(noted, source(tmp_path), steps, time.time()) == {10: "step1"}


# Failures: one line that names the repository, the revision where there is one, and the cause.


def failure(call) -> str:
    with pytest.raises(UserError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert "/" in message.split(",")[0].split(":")[0]
    return message


@pytest.mark.usefixtures("hub")
def test_unknown_repository():
    message = failure(lambda: HubSource("tests/nowhere", "step{step}").names())
    assert message.startswith("tests/nowhere: no such repository")


@pytest.mark.usefixtures("hub")
def test_a_name_that_is_none():
    message = failure(lambda: HubSource("tests/a/b", "step{step}"))
    assert message.startswith("tests/a/b: not a valid name")


@pytest.mark.usefixtures("hub")
def test_unknown_revision(tmp_path):
    message = failure(lambda: source(tmp_path).fetch("step7"))
    assert message == f"{REPO}, revision step7: no such revision"
    message = failure(lambda: fetch(tmp_path, 7))
    assert message == f"{REPO}: revisions step{{step}}: no checkpoint of step 7; the nearest are 0, 10, 100"


@pytest.mark.parametrize("revision", ["../../etc", "/etc", "a b", ""])
def test_a_revision_that_is_no_name_reaches_neither_disk_nor_network(tmp_path, revision):
    with pytest.raises(UserError, match="is not a valid name of a revision"):
        source(tmp_path).fetch(revision)


def test_gated_repository(hub, tmp_path):
    hub.repositories[REPO].gated = True
    message = failure(lambda: fetch(tmp_path))
    assert message.startswith(f"{REPO}, revision step0: gated")


def test_revision_without_weights(hub, tmp_path):
    hub.repositories["tests/empty"] = Repository({"main": {"README.md": b"soon"}})
    message = failure(lambda: source(tmp_path, repo="tests/empty").fetch("main"))
    assert message.startswith("tests/empty, revision main: no weights")


PLACES = {
    "list of revisions": ("GET", "/refs"),
    "list of files": ("GET", "/revision/step0"),
    "large file": ("GET", "model.safetensors"),
    "small file": ("GET", "config.json"),
}
CAUSES = {"500": "the server answered 500", "stall": "no answer within 0.5 s", "cut": "the download broke off"}
FAULTS = [
    (kind, place)
    for kind in CAUSES
    for place in PLACES
    if kind != "cut" or place.endswith(("large file", "small file"))
]


@pytest.mark.parametrize(("kind", "place"), FAULTS)
def test_a_failing_hub_ends_in_one_line_and_the_next_run_goes_on(hub, tmp_path, place, kind):
    method, path = PLACES[place]
    hub.faults = [Fault(kind, path, method)]
    message = failure(lambda: fetch(tmp_path))
    assert CAUSES[kind] in message
    failed = [request for request in hub.requests if request[0] == method and path in request[1]]
    if kind == "cut":
        # Each break leaves half of what was missing, until nothing more comes.
        assert f"after {hub_client.ATTEMPTS} attempts without progress at {hub.url}" in message
        assert hub_client.ATTEMPTS < len(failed) < 40  # bytes are halved until none is left
    else:
        assert f"after {hub_client.ATTEMPTS} attempts at {hub.url}" in message
        # The bound itself: not one request more than the attempts.
        assert len(failed) == hub_client.ATTEMPTS
    assert not list(tmp_path.rglob("*.incomplete"))

    hub.faults = []
    hub.requests.clear()
    folder = fetch(tmp_path)
    assert dict(checkpoints.iterate_matrices(folder))
    # What the first run fetched is not fetched again.
    assert hub.fetched("config.json") == (0 if place == "large file" else 1)


@pytest.mark.parametrize(("kind", "place"), [fault for fault in FAULTS if fault[0] != "stall"])
def test_a_failure_that_passes_is_not_seen(hub, tmp_path, place, kind):
    method, path = PLACES[place]
    hub.faults = [Fault(kind, path, method, times=1)]
    assert dict(checkpoints.iterate_matrices(fetch(tmp_path)))


@pytest.mark.parametrize("kind", ["cut", "reset", "halt", "short"])
def test_a_download_goes_on_from_where_it_broke_off(hub, tmp_path, contents, kind):
    hub.faults = [Fault(kind, "model.safetensors", times=1)]
    folder = fetch(tmp_path)
    whole = contents["step0"]["model.safetensors"]
    assert hub.fetched("model.safetensors") == 2
    # What was under way when a connection is reset may be lost.
    assert hub.ranges == [f"bytes={len(whole) // 2}-"] or kind == "reset"
    assert (folder / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("kind", ["cut", "short"])
def test_many_breaks_are_no_failure_while_something_comes(hub, tmp_path, contents, kind):
    hub.faults = [Fault(kind, "model.safetensors", times=13)]
    folder = fetch(tmp_path)
    assert hub.fetched("model.safetensors") == 14
    assert (folder / "model.safetensors").read_bytes() == contents["step0"]["model.safetensors"]


def test_a_file_elsewhere_is_fetched_without_the_token(hub, tmp_path, contents, monkeypatch):
    """The Hub sends downloads to other hosts."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    whole = contents["step0"]["model.safetensors"]
    file = f"/cdn/{REPO}/resolve/{commit_of('step0', contents['step0'])}/model.safetensors"
    hub.faults = [Fault("cut", file, times=1), Fault("elsewhere", "/resolve/")]
    assert (fetch(tmp_path) / "model.safetensors").read_bytes() == whole
    assert hub.ranges[-1] == f"bytes={len(whole) // 2}-"
    assert file in hub.tokens
    for path, token in hub.tokens.items():
        assert token == (None if path.startswith("/cdn/") else "Bearer hf_secret")


def test_a_slow_download_is_no_silence(hub, tmp_path):
    hub.faults = [Fault("trickle", "model.safetensors", pause=2 * TIMEOUT / 20)]
    fetch(tmp_path)
    assert hub.fetched("model.safetensors") == 1


def test_more_than_the_hub_states_is_fetched_again(hub, tmp_path, contents):
    hub.faults = [Fault("long", "model.safetensors", times=1)]
    assert (fetch(tmp_path) / "model.safetensors").read_bytes() == contents["step0"]["model.safetensors"]
    assert hub.fetched("model.safetensors") == 2


@pytest.mark.parametrize(("kind", "path"), [("103", "/refs"), ("endless", "/refs"), ("103", "model.safetensors")])
def test_a_server_that_never_ends_its_answer_is_left_after_the_time_allowed(hub, tmp_path, monkeypatch, kind, path):
    monkeypatch.setattr(hub_client, "PATIENCE", 4.0)
    hub.faults = [Fault(kind, path, pause=TIMEOUT / 4)]
    begun = time.monotonic()
    assert "too slow, not complete in the time allowed" in failure(lambda: fetch(tmp_path))
    assert time.monotonic() - begun < 20 * TIMEOUT


def test_json_without_end_takes_no_more_memory_than_is_allowed(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_client, "LONGEST_JSON", 1 << 20)
    hub.faults = [Fault("endless", "/refs", pause=0.0)]
    assert "the answer is not that of a Hub (longer than 1 MB)" in failure(lambda: fetch(tmp_path))


def test_a_body_without_end_ends_at_the_stated_size_and_leaves_no_part(hub, tmp_path):
    hub.faults = [Fault("endless", "model.safetensors", pause=0.0)]
    with pytest.raises(DownloadError, match=r"model.safetensors is longer than the \d+ bytes that the Hub states"):
        fetch(tmp_path)
    assert [part.stat().st_size for part in tmp_path.rglob("*.part")] == [0]


@pytest.mark.parametrize("path", ["/refs", "config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["gzip", "gzip gzip", "gzip 500", "endless 500", "endless 302"])
def test_a_body_that_inflates_or_never_ends_takes_neither_memory_nor_time(hub, tmp_path, kind, path):
    hub.faults = [Fault(kind, path, pause=0.0)]
    reason = (
        "the server answered 500" if "500" in kind else "content is encoded (gzip" if "gzip" in kind else "redirect"
    )
    for times in (1, 2):
        bomb(times)  # made before what the client takes is counted
    begun = time.monotonic()
    tracemalloc.start()
    try:
        assert reason in failure(lambda: fetch(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24  # the body is 64 MB, or as large as the time allows
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begun < 20 * TIMEOUT
    assert sum(part.stat().st_size for part in tmp_path.rglob("*.part")) == 0
    hub.faults = []
    fetch(tmp_path)


def test_a_byte_now_and_then_is_left_after_the_time_allowed_and_nothing_writes_on(hub, tmp_path, monkeypatch, contents):
    monkeypatch.setattr(hub_client, "PATIENCE", 4.0)
    threads = set(threading.enumerate())
    hub.faults = [Fault("drip", "model.safetensors", pause=TIMEOUT / 4)]
    begun = time.monotonic()
    assert "too slow, not complete in the time allowed" in failure(lambda: fetch(tmp_path))
    assert time.monotonic() - begun < 20 * TIMEOUT
    (part,) = tmp_path.rglob("*.part")
    before = part.read_bytes()
    assert contents["step0"]["model.safetensors"].startswith(before)
    assert len(before) < 40
    for thread in set(threading.enumerate()) - threads:
        if "(run)" in thread.name:  # of the client, not of the server
            thread.join(timeout=20 * TIMEOUT)
            assert not thread.is_alive()
    assert 0 < len(before) <= len(part.read_bytes()) <= len(before) + 1
    hub.faults = []
    fetch(tmp_path)


def test_a_rerun_goes_on_from_what_an_earlier_run_got(hub, tmp_path, contents):
    hub.faults = [Fault("cut", "model.safetensors", times=1), Fault("500", "model.safetensors")]
    failure(lambda: fetch(tmp_path))
    whole = contents["step0"]["model.safetensors"]
    (part,) = tmp_path.glob("models--*/blobs/*.part")
    assert part.read_bytes() == whole[: len(whole) // 2]
    hub.faults = []
    hub.ranges.clear()
    folder = fetch(tmp_path)
    assert hub.ranges == [f"bytes={len(whole) // 2}-"]
    assert (folder / "model.safetensors").read_bytes() == whole


CHILD = """
import resource, signal, sys
from toposcale.checkpoints.hub import HubSource
from toposcale.checkpoints.hub_client import HubUnreachableError
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
print(HubSource("tests/tiny-neox", "step{step}", sys.argv[1]).fetch("step0"))
"""


def child(hub: SmallHub, *arguments: str) -> subprocess.Popen[str]:
    """A process of its own that fetches the first step."""
    environment = os.environ | {"HF_ENDPOINT": hub.url, "PYTHONPATH": str(Path(checkpoints.__file__).parents[2])}
    command = [sys.executable, "-c", CHILD, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_rerun_goes_on_from_what_a_killed_run_got(hub, tmp_path, contents):
    whole = contents["step0"]["model.safetensors"]
    hub.faults = [Fault("halt", "model.safetensors", times=1)]
    with child(hub, str(tmp_path)) as running:
        for _ in range(600):
            if any(part.stat().st_size for part in tmp_path.glob("models--*/blobs/*.part")):
                break
            time.sleep(0.05)
        running.kill()
    assert (fetch(tmp_path) / "model.safetensors").read_bytes() == whole
    assert hub.ranges == [f"bytes={len(whole) // 2}-"]


def test_a_full_disk_is_named_and_the_next_run_goes_on(hub, tmp_path, contents):
    whole = contents["step0"]["model.safetensors"]
    with child(hub, str(tmp_path), str(len(whole) // 3)) as running:
        told = running.communicate()[1].splitlines()[-1]
    assert f"{REPO}, revision step0: the cache cannot be written" in told
    assert hub.fetched("model.safetensors") == 1
    assert (fetch(tmp_path) / "model.safetensors").read_bytes() == whole
    assert hub.ranges == [f"bytes={len(whole) // 3}-"]


@pytest.mark.parametrize("length", [3, 10**6])
def test_a_part_that_is_damaged_is_fetched_again(hub, tmp_path, contents, length):
    whole = contents["step0"]["model.safetensors"]
    blobs = tmp_path / f"models--{REPO.replace('/', '--')}" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(whole).hexdigest()}.part").write_bytes(b"?" * length)
    assert (fetch(tmp_path) / "model.safetensors").read_bytes() == whole


def as_header(wait: str | timedelta) -> str:
    """A wait as a header says it: a text as it stands, a time from now as a date."""
    return wait if isinstance(wait, str) else format_datetime(datetime.now(UTC) + wait, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": timedelta(seconds=90)}, 80, 90),
        ({"Retry-After": timedelta(seconds=-90)}, 0, 0),
        ({"Retry-After": "soon"}, 0, 0),
        ({}, 0, 0),
        ({"Retry-After": "7", "RateLimit": '"api";r=0;t=54'}, 55, 55),
        ({"Retry-After": "7", "RateLimit": '"api";r=3;t=54'}, 7, 7),
    ],
)
def test_a_hub_gets_the_wait_that_it_asks_for(hub, tmp_path, monkeypatch, headers, least, most):
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    stated = {name: as_header(value) for name, value in headers.items()}
    hub.faults = [Fault("429", "/refs", times=1, headers=stated)]
    assert list(source(tmp_path).revisions()) == list(STEPS)
    assert len(waits) == 1
    assert least <= waits[0] <= most


@pytest.mark.parametrize("wait", ["3600", timedelta(hours=1), "9" * 400])
def test_a_hub_that_asks_for_a_long_wait_is_told_of(hub, tmp_path, monkeypatch, wait):
    monkeypatch.setattr("time.sleep", pytest.fail)
    hub.faults = [Fault("429", "/refs", headers={"Retry-After": as_header(wait)})]
    message = failure(lambda: source(tmp_path).revisions())
    assert re.search(r"the server answered 429 and asked to wait (3[56]\d\d|inf) s, at http", message)
    assert len(hub.requests) == 1


def test_a_mirror_without_checksums_is_told_of(hub, tmp_path):
    hub.faults = [Fault("no-checksums", "/api/models/")]
    with pytest.raises(UserError, match=r"does not state the size and the checksum of .* \(blobs=true\)"):
        fetch(tmp_path)


def test_what_cannot_be_used_is_noted_and_read_as_a_reason(hub, tmp_path):
    hub.repositories[REPO].branches["step50"] = {"README.md": b"soon"}
    for step, reason in ((50, f"{REPO}, revision step50: no weights"), (7, "no checkpoint of step 7")):
        manifest = tmp_path / f"{step}.json"
        assert write_manifest(manifest, source(tmp_path), step)["n_parameters"] is None
        with pytest.raises(UserError, match=re.escape(reason)):
            read_manifest(manifest)


class Unpickled:
    """What a `.bin` may hold beside tensors: unpickling it would call a function."""

    def __reduce__(self):
        return (print, ("unpickled",))


def pickled() -> bytes:
    """A `.bin` file with an object in it."""
    file = io.BytesIO()
    torch.save({"w": torch.ones(2, 2), "more": Unpickled()}, file)
    return file.getvalue()


UNUSABLE = {
    "gguf alone": {"model.gguf": b"GGUF"},
    "empty weights": {"config.json": b"{}", "model.safetensors": b""},
    "empty bin": {"config.json": b"{}", "pytorch_model.bin": b""},
    "objects": {"config.json": b"{}", "pytorch_model.bin": pickled()},
    "empty index": {"model.safetensors.index.json": b"", "model-00001-of-00001.safetensors": b""},
    "nested index": {"model.safetensors.index.json": b"[" * 10**5, "model-00001-of-00001.safetensors": b""},
    "nested header": {"model.safetensors": (10**5).to_bytes(8, "little") + b"[" * 10**5},
}


@pytest.mark.parametrize("files", UNUSABLE.values(), ids=UNUSABLE)
def test_a_checkpoint_that_cannot_be_read_is_a_gap_of_its_own(hub, tmp_path, files):
    hub.repositories[REPO].branches["step10"] = files
    manifest = tmp_path / "manifest.json"
    assert write_manifest(manifest, source(tmp_path / "cache"), 10)["n_parameters"] is None
    with pytest.raises(UserError, match=f"^{REPO}, revision step10: ") as caught:
        read_manifest(manifest)
    assert not isinstance(caught.value, SharedError)
    assert str(tmp_path) not in str(caught.value)


ODD = {
    "404 of a file": Fault("404", "model.safetensors"),
    "403 of a file": Fault("403", "config.json"),
    "403 of a revision": Fault("403", "/revision/step10"),
    "size of 2^50": {"size": 1 << 50},
    "size that is none": {"size": "large"},
    "malformed sha256": {"lfs": {"sha256": "zz" * 32}},
    "no sha256": {"lfs": {}, "blobId": "sha1"},
    "nothing of large files": {"lfs": "sha256"},
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_served_otherwise_than_stated_is_a_gap_of_one_checkpoint_that_heals(hub, tmp_path, kind):
    repository, odd = hub.repositories[REPO], ODD[kind]
    hub.faults = [dataclasses.replace(odd)] if isinstance(odd, Fault) else []
    repository.stated = {} if isinstance(odd, Fault) else {"step10/model.safetensors": odd}
    manifest = tmp_path / "10.json"
    fetched = write_manifest(manifest, source(tmp_path / "cache"), 10)
    assert (fetched["n_parameters"], fetched["attempt"]) == (None, 1)
    with pytest.raises(UserError, match=f"^{REPO}, revision step10: ") as caught:
        read_manifest(manifest)
    assert not isinstance(caught.value, SharedError)
    if kind.startswith("size"):
        assert "the Hub states" in str(caught.value)

    hub.faults, repository.stated = [], {}
    assert write_manifest(manifest, source(tmp_path / "cache"), 10)["n_parameters"]
    assert (read_manifest(manifest) / "model.safetensors").is_file()


def test_a_repository_that_does_not_list_its_revisions_ends_the_run(hub, tmp_path):
    hub.faults = [Fault("403", "/refs")]
    with pytest.raises(SharedError, match="the server answered 403"):
        written(tmp_path, 10)


# A branch that moves: features of two commits do not belong to one checkpoint.


def written(tmp_path: Path, step: int) -> Path:
    """The manifest of a step."""
    manifest = tmp_path / f"{step}.json"
    write_manifest(manifest, source(tmp_path / "cache"), step)
    return manifest


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_checkpoint_is_fetched_again_as_it_was_though_its_branch_has_moved(hub, contents, tmp_path, damage):
    manifest = written(tmp_path, 10)
    hub.repositories[REPO].move("step10", contents["step100"])
    damage_weights(tmp_path / "cache", damage)
    assert (read_manifest(manifest) / "model.safetensors").read_bytes() == contents["step10"]["model.safetensors"]
    # A new manifest takes the branch as it is now, and says so.
    before = json.loads(manifest.read_text())["commit"]
    assert checkpoints.locations.moved(manifest) == ""
    write_manifest(manifest, source(tmp_path / "cache"), 10, before={"commit": before})
    assert f"it was commit {before[:12]} when it was fetched first" in checkpoints.locations.moved(manifest)
    assert (read_manifest(written(tmp_path, 10)) / "model.safetensors").read_bytes() == contents["step100"][
        "model.safetensors"
    ]


def test_a_commit_that_is_gone_is_named_and_another_is_not_taken(hub, contents, tmp_path):
    manifest = written(tmp_path, 10)
    commit = json.loads(manifest.read_text())["commit"]
    hub.repositories[REPO].move("step10", contents["step100"], forget=True)
    damage_weights(tmp_path / "cache", "changed")
    message = failure(lambda: read_manifest(manifest))
    assert message == f"{REPO}, revision step10: it was commit {commit} before, which the Hub no longer has"


# An outage says nothing about a checkpoint.


@pytest.mark.parametrize("place", ["/refs", "/revision/step10"])
def test_revisions_that_could_not_be_compared_are_an_error_also_with_a_cache(hub, contents, tmp_path, place):
    hub.repositories[REPO].branches["step1"] = contents["step0"]
    fetch(tmp_path)
    hub.faults = [Fault("500", place)]
    with pytest.raises(HubUnreachableError):
        source(tmp_path).duplicates([0, 1, 10])
    hub.faults = []
    assert source(tmp_path).duplicates([0, 1, 10]) == {1: "step0"}


def test_in_offline_mode_what_is_in_the_cache_is_compared(hub, contents, tmp_path, monkeypatch):
    hub.repositories[REPO].branches["step1"] = contents["step0"]
    for step in (0, 1, 10):
        fetch(tmp_path, step)
    offline(monkeypatch)
    hub.requests.clear()
    assert source(tmp_path).duplicates([0, 1, 10]) == {1: "step0"}
    assert hub.requests == []


@pytest.mark.parametrize("place", ["/refs", "/revision/step10", "model.safetensors"])
def test_a_hub_that_is_down_makes_no_gap(hub, tmp_path, place):
    """Of a repository of which the cache has another step."""
    fetch(tmp_path / "cache")
    hub.faults = [Fault("500", place)]
    with pytest.raises(HubUnreachableError):
        written(tmp_path, 10)


def test_damage_that_cannot_be_repaired_now_ends_the_run(hub, tmp_path):
    manifest = written(tmp_path, 10)
    damage_weights(tmp_path / "cache", "changed")
    hub.faults = [Fault("500", "/api/")]
    with pytest.raises(HubUnreachableError, match="damaged in the cache; run with network access"):
        read_manifest(manifest)
    hub.faults = []
    assert (read_manifest(manifest) / "model.safetensors").is_file()


def test_a_duplicate_is_not_fetched(hub, tmp_path):
    manifest = tmp_path / "manifest.json"
    assert write_manifest(manifest, source(tmp_path), 10, repeats="main")["n_parameters"] is None
    assert hub.requests == []
    with pytest.raises(LeftOutError, match="step 10 serves the weights of main"):
        read_manifest(manifest)


def test_a_message_names_repository_and_revision_and_no_cache(hub, contents, tmp_path):
    hub.repositories[REPO].branches["step10"] = contents["step10"] | {"config.json": b"{}"}
    manifest = tmp_path / "manifest.json"
    size = write_manifest(manifest, source(tmp_path / "cache"), 10)
    tensors = load_file(read_manifest(manifest) / "model.safetensors").values()
    assert size["n_parameters"] == sum(tensor.size for tensor in tensors)
    assert size["largest_matrix"] == max(tensor.size for tensor in tensors if tensor.ndim == 2)
    with pytest.raises(UserError) as caught:
        language_models.load_model(checkpoints.locate(manifest))
    message = checkpoints.locations.readable(str(caught.value), manifest)
    assert message.startswith(f"{REPO}, revision step10: ")
    assert "cache" not in message


def test_something_that_is_not_a_hub(hub, tmp_path):
    hub.faults = [Fault("not-json", "/refs")]
    assert "the answer is not that of a Hub" in failure(lambda: fetch(tmp_path))


def test_nobody_answers(monkeypatch, tmp_path):
    with SmallHub() as running:
        address = running.url
    monkeypatch.setenv("HF_ENDPOINT", address)  # of a server that is gone
    assert "the connection failed" in failure(lambda: fetch(tmp_path))


@pytest.mark.usefixtures("hub")
def test_offline_without_cache(tmp_path, monkeypatch):
    offline(monkeypatch)
    message = failure(lambda: fetch(tmp_path))
    assert message.startswith(f"{REPO}: offline mode is on")
    assert str(tmp_path) in message
    message = failure(lambda: source(tmp_path).fetch("step0"))
    assert message.startswith(f"{REPO}, revision step0: offline mode is on")


def test_offline_with_cache(hub, tmp_path, monkeypatch):
    folder = fetch(tmp_path)
    offline(monkeypatch)
    hub.requests.clear()
    assert fetch(tmp_path) == folder
    assert hub.requests == []
    message = failure(lambda: fetch(tmp_path, 10))
    assert message.startswith(f"{REPO}: offline mode is on")
    assert f"step 10 is not in the cache {tmp_path}" in message


@pytest.mark.usefixtures("hub")
def test_offline_with_a_damaged_cache(tmp_path, monkeypatch):
    folder = fetch(tmp_path)
    damage_weights(tmp_path, "changed")
    offline(monkeypatch)
    message = failure(lambda: fetch(tmp_path))
    assert f"offline mode is on (HF_HUB_OFFLINE); {folder / 'model.safetensors'}: damaged" in message


def test_a_hub_that_goes_away_leaves_what_is_in_the_cache(hub, tmp_path, caplog):
    folder = fetch(tmp_path)
    hub.faults = [Fault("500", "/api/")]
    assert fetch(tmp_path) == folder
    assert "going on with what is in the cache" in caplog.text


def test_in_a_process_of_its_own_with_nothing_but_the_environment(hub, tmp_path):
    code = (
        "import json, sys; from toposcale import checkpoints; from toposcale.checkpoints import hub\n"
        f"source = hub.HubSource({REPO!r}, 'step{{step}}')\n"
        "names = [name for name, _ in checkpoints.iterate_matrices(source.fetch('step10'))]\n"
        "json.dump([len(names), 'torch' in sys.modules], sys.stdout)"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(checkpoints.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    # Two embeddings, and four matrices in each of two layers; and no torch for safetensors.
    assert json.loads(done.stdout) == [10, False]
    assert list(tmp_path.glob("hub/models--tests--tiny-neox/snapshots/*/model.safetensors"))
