"""Turns: which published checkpoints are fetched, and what leaves the bounded cache before."""

from pathlib import Path

import pytest

import configuration
import inputs
import plan
import turns

SPANS = [f"h/step-0000000{step}" for step in range(4)]


@pytest.fixture
def turns_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(**keys):
        hub = {"kind": "hub", "repo": "a/b", "revisions": "step{step}", "steps": [0, 1, 2, 3]}
        keys = {"run": "mine", "models": {"h": hub}, "hub": {"keep": False, "resident": 2}} | keys
        return turns.Turns(inputs.Inputs(plan.Plan(configuration.resolve(keys))))

    return of


def write(checkpoint, kind, text=""):
    path = Path(f"results/mine/checkpoints/{checkpoint}.{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def released(checkpoint):
    return [f"results/mine/checkpoints/{checkpoint}.released"]


def test_a_checkpoint_enters_when_the_one_so_many_before_has_left(turns_of):
    found = turns_of()
    assert found.to_fetch == found.in_turn == SPANS
    assert [found.room_for(span, 4) for span in SPANS] == [[], [], released(SPANS[0]), released(SPANS[1])]


def test_the_cache_holds_one_more_than_there_are_cores_unless_told(turns_of):
    found = turns_of(hub={"keep": False})
    assert found.room_for(SPANS[3], 2) == released(SPANS[0])
    assert found.room_for(SPANS[3], 3) == []
    assert turns_of(hub={"keep": True}).room_for(SPANS[3], 1) == []


def test_what_was_fetched_for_the_same_purpose_is_not_fetched_again(turns_of):
    found = turns_of()
    for span in SPANS[:3]:
        write(span, "turn", " ".join(found.purposes[span]))
    write(SPANS[0], "size.json", "{}")  # finished, and left the cache
    write(SPANS[1], "size.json", "{}")
    write(SPANS[1], "json", "{}")  # still in the cache
    again = turns_of()
    assert again.to_fetch == SPANS[3:]
    assert again.in_turn == SPANS[1:]
    assert again.room_for(SPANS[3], 1) == released(SPANS[1])


def test_another_measurement_fetches_what_has_left_the_cache(turns_of):
    found = turns_of()
    for span in SPANS:
        write(span, "turn", " ".join(found.purposes[span]))
        write(span, "size.json", "{}")
    write(SPANS[0], "json", "{}")
    assert turns_of().to_fetch == []
    assert turns_of(weights={"max_points": 9}).to_fetch == SPANS[1:]
    assert turns_of(weights={"max_points": 9}, hub={"keep": True}).to_fetch == []


def test_another_source_or_a_damaged_download_fetches_a_checkpoint_again(turns_of):
    found = turns_of()
    for span in SPANS:
        write(span, "turn", " ".join(found.purposes[span]))
        write(span, "size.json", "{}")
        write(span, "json", "{}")
    write(SPANS[2], "size.json", '{"damaged": 1}')
    assert turns_of().to_fetch == SPANS[2:3]
    assert turns_of(hub={"keep": False, "duplicates": "include"}).to_fetch == SPANS
