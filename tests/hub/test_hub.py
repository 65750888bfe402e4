"""huggingface_hub against a small Hub: what is found, what is fetched, and how failures end."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import fetch as fetch_script
from small_hub import Fault, SmallHub, commit_of
from tiny_model import REPO, STEPS, TEXT, VOCABULARY
from toposcale import checkpoints
from toposcale.checkpoints import language_models
from toposcale.checkpoints.checkpoint import LeftOutError, locate, readable
from toposcale.checkpoints.hub import HubSource
from toposcale.features import embeddings
from toposcale.io.errors import SharedError, UserError


def source(pattern: str = "step{step}", repo: str = REPO) -> HubSource:
    return HubSource(repo, pattern)


def fetch(folder: Path, step: int = 0, pattern: str = "step{step}", **options) -> Path:
    """Fetch a step into a folder, and return it."""
    found = source(pattern)
    found.fetch(found.listing([step])[step], folder, **options)
    return folder


def failure(call) -> UserError:
    """Return the error of a call: one line that names the repository."""
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(("tests/", REPO))
    return caught.value


# What is there.


@pytest.mark.usefixtures("hub")
def test_branches_and_tags_are_listed_and_optimiser_states_are_not():
    expected = ["main", "sharded-step0", "shards-step0", "step0", "step10", "step100", "tag-step0"]
    assert source().names() == expected


def test_sizes_and_commits_are_known_before_a_byte_is_fetched(hub, contents):
    listed = source().listing(STEPS)
    assert list(listed) == list(STEPS)
    for step, facts in listed.items():
        files = contents[f"step{step}"]
        assert facts["commit"] == commit_of(f"step{step}", files)
        assert facts["files"]["model.safetensors"] == len(files["model.safetensors"])
        assert all(facts["files"][name] == len(files[name]) for name in facts["files"])
    assert not any("/resolve/" in path for _, path in hub.requests)


def test_equal_weights_are_found_before_anything_is_downloaded(hub, contents):
    branches = hub.repositories[REPO].branches
    branches |= {"step1": contents["step0"], "step50": contents["step100"]}
    repeats = {step: facts["repeats"] for step, facts in source().listing([0, 1, 10, 50, 100]).items()}
    assert repeats == {0: None, 1: "step0", 10: None, 50: "step100", 100: None}
    assert not any("/resolve/" in path for _, path in hub.requests)


def test_a_step_that_serves_the_final_weights_is_found_when_the_final_step_is_not_wanted(hub, contents):
    hub.repositories[REPO].branches["step10"] = contents["step100"]
    assert source().listing([0, 10])[10]["repeats"] == "main"


@pytest.mark.usefixtures("hub")
def test_a_step_that_is_not_there_is_a_matter_of_one_checkpoint():
    assert source().listing([0, 7])[7]["unusable"].endswith("no checkpoint of step 7; the nearest are 0, 10, 100")


def test_a_revision_without_weights_is_a_matter_of_one_checkpoint(hub):
    hub.repositories[REPO].branches["step50"] = {"README.md": b"soon"}
    assert source().listing([50])[50]["unusable"].startswith(f"{REPO}, revision step50: no weights")


# What is fetched.


@pytest.mark.parametrize("pattern", ["step{step}", "sharded-step{step}", "tag-step{step}", "shards-step{step}"])
@pytest.mark.usefixtures("hub")
def test_every_weight_format_gives_the_same_matrices_and_the_same_model(tmp_path, checkpoint_folders, pattern):
    folder = fetch(tmp_path / "fetched", 0, pattern)
    stored = load_file(checkpoint_folders["step0"] / "model.safetensors")
    expected = {name: tensor for name, tensor in stored.items() if tensor.ndim == 2}
    found = dict(checkpoints.Checkpoint(folder).matrices())
    assert found.keys() == expected.keys()
    for name, matrix in expected.items():
        np.testing.assert_array_equal(found[name], matrix)
    model = language_models.load_model(folder)
    assert (model.vocab_size, model.context) == (VOCABULARY, 64)


@pytest.mark.usefixtures("hub")
def test_from_repository_to_features(tmp_path):
    folder = fetch(tmp_path / "fetched", 10)
    model = language_models.load_model(folder)
    tokenizer = language_models.load_tokenizer(folder, model.vocab_size)
    texts = embeddings.tokenize(re.findall(r"[^.]+\.", TEXT), tokenizer, tokens=32)
    result = embeddings.forward_pass(model, texts)
    features, diagrams = embeddings.embedding_features(result.embeddings["all"])
    # Weights of standard deviation 0.02 tell nothing: every token is about as likely as any other.
    assert result.perplexity == pytest.approx(VOCABULARY, rel=0.05)
    assert features["h0_count"] == len(texts) - 1
    assert len(diagrams[0]) == len(texts) - 1


def test_one_format_is_fetched_and_never_code(hub, contents, tmp_path):
    more = {"code.py": b"print()", "optimizer.pt": b"pickle", "training_args.bin": b"pickle"}
    hub.repositories[REPO].branches["step0"] = contents["step0"] | contents["bin"] | more
    fetch(tmp_path / "fetched")
    for name in ("pytorch_model.bin", *more):
        assert hub.fetched(name) == 0
    assert hub.fetched("model.safetensors") == 1


def test_what_is_kept_is_fetched_once_and_read_without_a_network(hub, tmp_path, monkeypatch):
    cache, facts = str(tmp_path / "cache"), source().listing([0])[0]
    source().fetch(facts, tmp_path / "first", cache=cache, keep=True)
    [kept] = (tmp_path / "cache").glob("models--*/snapshots/*/model.safetensors")
    assert (tmp_path / "first/model.safetensors").samefile(kept)
    # What the cache has serves a checkpoint that does not stay, too.
    source().fetch(facts, tmp_path / "second", cache=cache)
    assert hub.fetched("model.safetensors") == 1
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    source().fetch(facts, tmp_path / "third", cache=cache, keep=True)
    assert dict(checkpoints.Checkpoint(tmp_path / "third").matrices())


def test_the_commit_that_was_listed_is_fetched_though_its_branch_has_moved(hub, contents, tmp_path):
    facts = source().listing([10])[10]
    hub.repositories[REPO].move("step10", contents["step100"])
    source().fetch(facts, tmp_path / "fetched")
    assert (tmp_path / "fetched/model.safetensors").read_bytes() == contents["step10"]["model.safetensors"]


def test_a_commit_that_is_gone_is_named_and_another_is_not_taken(hub, contents, tmp_path):
    facts = source().listing([10])[10]
    hub.repositories[REPO].move("step10", contents["step100"], forget=True)
    error = failure(lambda: source().fetch(facts, tmp_path / "fetched"))
    assert str(error) == f"{REPO}, revision step10: no such revision, or no longer"
    assert not isinstance(error, SharedError)


@pytest.mark.parametrize("methods", [("HEAD", "GET"), ("GET",)])
def test_the_token_goes_to_the_endpoint_alone(hub, tmp_path, contents, monkeypatch, methods):
    """The Hub sends downloads to other hosts."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    file = f"/cdn/{REPO}/resolve/{commit_of('step0', contents['step0'])}/model.safetensors"
    hub.faults = [Fault("elsewhere", "/resolve/", method) for method in methods]
    fetch(tmp_path / "fetched")
    assert (tmp_path / "fetched/model.safetensors").read_bytes() == contents["step0"]["model.safetensors"]
    assert file in hub.tokens
    for path, token in hub.tokens.items():
        assert token == (None if path.startswith("/cdn/") else "Bearer hf_secret")


def test_a_break_that_passes_is_not_seen(hub, tmp_path, contents):
    hub.faults = [Fault("cut", "model.safetensors", times=1)]
    assert (fetch(tmp_path / "fetched") / "model.safetensors").read_bytes() == contents["step0"]["model.safetensors"]


# Failures: one line that names the repository, the revision where there is one, and the cause.


@pytest.mark.usefixtures("hub")
def test_unknown_repository():
    error = failure(source(repo="tests/nowhere").names)
    assert str(error).startswith("tests/nowhere: no such repository")
    assert isinstance(error, SharedError)


def test_a_name_that_is_none():
    assert str(failure(lambda: source(repo="tests/a/b"))).startswith("tests/a/b: not a valid name")


@pytest.mark.usefixtures("hub")
def test_a_pattern_that_no_name_matches():
    error = failure(lambda: source("checkpoint-{step}").listing([0]))
    assert "no name matches this pattern; the names are main, " in str(error)
    assert isinstance(error, SharedError)


def test_gated_repository(hub, tmp_path):
    hub.repositories[REPO].gated = True
    error = failure(lambda: fetch(tmp_path / "fetched"))
    assert str(error).startswith(f"{REPO}, revision step0: gated; accept its terms")
    assert isinstance(error, SharedError)


@pytest.mark.parametrize(
    ("kind", "path", "reason"),
    [
        ("500", "/refs", "the server answered 500"),
        ("500", "/revision/step0", "the server answered 500"),
        ("403", "/refs", "the server answered 403"),
        ("not-json", "/refs", "the download failed"),
    ],
)
def test_a_failing_hub_ends_the_run_in_one_line(hub, kind, path, reason):
    hub.faults = [Fault(kind, path)]
    error = failure(lambda: source().listing([0]))
    assert reason in str(error)
    assert str(error).endswith(f" at {hub.url}")
    assert isinstance(error, SharedError)


def test_a_refused_revision_is_a_matter_of_one_checkpoint(hub):
    hub.faults = [Fault("403", "/revision/step10")]
    listed = source().listing([0, 10])
    assert "unusable" not in listed[0]
    assert "the server answered 403" in listed[10]["unusable"]


def test_nobody_answers(monkeypatch):
    with SmallHub() as running:
        address = running.url
    monkeypatch.setenv("HF_ENDPOINT", address)  # of a server that is gone
    error = failure(source().names)
    assert "the download failed" in str(error)
    assert isinstance(error, SharedError)


@pytest.mark.usefixtures("hub")
def test_offline_mode(tmp_path, monkeypatch):
    facts = source().listing([0])[0]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert str(failure(source().names)) == f"{REPO}: offline mode is on (HF_HUB_OFFLINE)"
    error = failure(lambda: source().fetch(facts, tmp_path / "fetched", cache=str(tmp_path / "cache")))
    assert str(error) == f"{REPO}, revision step0: offline mode is on (HF_HUB_OFFLINE)"


def test_a_checkpoint_that_does_not_fit_on_the_disk_is_not_begun(hub, tmp_path, monkeypatch):
    facts = source().listing([0])[0]
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    error = failure(lambda: source().fetch(facts, tmp_path / "fetched"))
    assert "cannot be written (0.0 GB are needed, 0.0 GB are free); make room and run again" in str(error)
    assert isinstance(error, SharedError)
    assert hub.fetched("model.safetensors") == 0


@pytest.mark.usefixtures("hub")
def test_a_disk_that_fills_up_is_one_line(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", full)
    error = failure(lambda: fetch(tmp_path / "fetched"))
    assert str(error) == f"{REPO}, revision step0: cannot be written (No space left on device); make room and run again"
    assert isinstance(error, SharedError)


# What a run notes of a checkpoint.


def note_of(folder: Path, step: int = 10) -> Path:
    """Fetch a step as the script does, and return what it notes."""
    facts = {"repo": REPO, "step": step, "folder": str(folder / "fetched")} | source().listing([step])[step]
    note = folder / f"{step}.json"
    note.write_text(json.dumps(fetch_script.fetch(source(), facts)))
    return note


def test_revisions_are_listed_once_a_run(hub, contents, tmp_path, monkeypatch):
    noted, branches = tmp_path / "revisions.json", hub.repositories[REPO].branches

    def repeats(since):
        listed = fetch_script.listing(noted, source(), [0, 10], since)
        return {step: facts["repeats"] for step, facts in listed.items()}

    assert repeats(time.time()) == {"0": None, "10": None}
    branches["step10"] = contents["step0"]
    assert repeats(0.0) == {"0": None, "10": None}
    assert repeats(time.time()) == {"0": None, "10": "step0"}
    # Other steps are another list, and without a network the last one counts.
    assert list(fetch_script.listing(noted, source(), [0], 0.0)) == ["0"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert list(fetch_script.listing(noted, source(), [0], time.time())) == ["0"]


class Unpickled:
    """What a `.bin` may hold besides tensors: unpickling it would call a function."""

    def __reduce__(self):
        return (print, ("unpickled",))


def pickled() -> bytes:
    """A `.bin` file with an object in it."""
    file = io.BytesIO()
    torch.save({"w": torch.ones(2, 2), "more": Unpickled()}, file)
    return file.getvalue()


UNUSABLE = {
    "empty weights": {"config.json": b"{}", "model.safetensors": b""},
    "empty bin": {"config.json": b"{}", "pytorch_model.bin": b""},
    "objects": {"config.json": b"{}", "pytorch_model.bin": pickled()},
    "empty index": {"model.safetensors.index.json": b"", "model-00001-of-00001.safetensors": b""},
    "nested header": {"model.safetensors": (10**5).to_bytes(8, "little") + b"[" * 10**5},
}


@pytest.mark.parametrize("files", UNUSABLE.values(), ids=UNUSABLE)
def test_a_checkpoint_that_cannot_be_read_is_a_gap_of_its_own(hub, tmp_path, capsys, files):
    hub.repositories[REPO].branches["step10"] = files
    note = note_of(tmp_path)
    with pytest.raises(UserError, match=f"^{REPO}, revision step10: ") as caught:
        locate(note)
    assert not isinstance(caught.value, SharedError)
    assert str(tmp_path) not in str(caught.value)
    assert "unpickled" not in capsys.readouterr().out


def test_a_message_names_repository_and_revision_and_no_folder(hub, contents, tmp_path):
    hub.repositories[REPO].branches["step10"] = contents["step10"] | {"config.json": b"{}"}
    note = note_of(tmp_path)
    facts, tensors = json.loads(note.read_text()), load_file(locate(note) / "model.safetensors").values()
    assert facts["n_parameters"] == sum(tensor.size for tensor in tensors)
    assert facts["largest_matrix"] == max(tensor.size for tensor in tensors if tensor.ndim == 2)
    with pytest.raises(UserError) as caught:
        language_models.load_model(locate(note))
    message = readable(str(caught.value), facts)
    assert message.startswith(f"{REPO}, revision step10: ")
    assert str(tmp_path) not in message


def test_a_duplicate_is_left_out_by_name(tmp_path):
    note = tmp_path / "10.json"
    note.write_text(json.dumps({"repo": REPO, "step": 10, "revision": "step10", "commit": "c", "repeats": "main"}))
    with pytest.raises(LeftOutError, match="step 10 serves the weights of main"):
        locate(note)


def test_in_a_process_of_its_own_with_nothing_but_the_environment(hub, tmp_path):
    code = (
        "import json, pathlib, sys; from toposcale import checkpoints; from toposcale.checkpoints import hub\n"
        f"source, folder = hub.HubSource({REPO!r}, 'step{{step}}'), pathlib.Path({str(tmp_path / 'fetched')!r})\n"
        "source.fetch(source.listing([10])[10], folder, keep=True)\n"
        "names = [name for name, _ in checkpoints.Checkpoint(folder).matrices()]\n"
        "json.dump([len(names), 'torch' in sys.modules], sys.stdout)"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(checkpoints.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    # Two embeddings, and four matrices in each of two layers; and no torch for safetensors.
    assert json.loads(done.stdout) == [10, False]
    assert list(tmp_path.glob("hub/models--tests--tiny-neox/snapshots/*/model.safetensors"))
