"""The log of a long job: how far it is, in plain lines; a short one says nothing."""

import logging

import pytest

import _job


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_job.time, "monotonic", lambda: now[0])
    return now


def told(clock, caplog, seconds, count=10):
    def items():
        for number in range(count):
            yield number
            clock[0] += seconds

    with caplog.at_level(logging.INFO):
        assert list(_job.progress(items(), count, "matrices")) == list(range(count))
    return [record.getMessage() for record in caplog.records]


def test_work_of_some_seconds_tells_nothing(clock, caplog):
    assert told(clock, caplog, 0.5) == []


def test_longer_work_tells_how_far_it_is_every_five_seconds_at_most(clock, caplog):
    lines = told(clock, caplog, 2.0)
    assert lines == ["3 of 10 matrices after 6 s", "6 of 10 matrices after 12 s", "9 of 10 matrices after 18 s"]


def test_a_line_has_no_control_characters(clock, caplog):
    assert all(line.isprintable() for line in told(clock, caplog, 60.0))
