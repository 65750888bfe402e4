"""What a run was made with is compared with what is asked for, where Snakemake's records of it are gone."""

import copy

import pytest
import yaml

import config_reading
import recorded
from toposcale.io.errors import UserError

GIVEN = {"run": "mine", "models": {"one": {"d_model": 8, "n_layers": 1, "n_heads": 2}}}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The configuration of a run that was made in this folder, its records lost."""
    monkeypatch.chdir(tmp_path)
    config = config_reading.resolve(GIVEN)
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "results" / "mine" / recorded.RECORD).write_text(yaml.safe_dump(config))
    return config, tmp_path / "results" / "mine"


def changed(config, *keys, to):
    config = copy.deepcopy(config)
    part = config
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return config


def test_the_same_keys_and_those_of_how_it_is_done_pass(made):
    config, results = made
    recorded.check(config, results)
    recorded.check(changed(config, "training", "jobs", to="model"), results)
    recorded.check(changed(config, "training", "device", to="cpu"), results)


@pytest.mark.parametrize(
    ("keys", "to", "words"),
    [
        (("training", "steps"), 7, "training.steps (it was 5000)"),
        (("models", "one", "d_model"), 16, "models.one.d_model (it was 8)"),
        (("models", "two"), {"kind": "gpt"}, "models.two (it was absent)"),
        (("seeds",), [1], "seeds (it was [42])"),
    ],
)
def test_a_changed_key_is_refused_in_one_line_that_says_what_to_do(made, keys, to, words):
    config, results = made
    with pytest.raises(UserError) as error:
        recorded.check(changed(config, *keys, to=to), results)
    text = str(error.value)
    assert words in text
    assert "\n" not in text
    assert "or delete" in text


def test_a_model_that_was_taken_out_is_refused(made):
    config, results = made
    with pytest.raises(UserError, match=r"models\.one"):
        recorded.check(changed(config, "models", to={}), results)


def test_while_snakemake_has_its_records_it_decides_itself(made):
    config, results = made
    recorded.mark(results).parent.mkdir(parents=True)
    recorded.mark(results).touch()
    recorded.check(changed(config, "training", "steps", to=7), results)


def test_a_key_that_a_later_version_knows_is_no_change(made):
    config, results = made
    recorded.check({**config, "new": {"section": 1}}, results)


def test_a_damaged_record_is_one_line(made):
    config, results = made
    (results / recorded.RECORD).write_bytes(b"\xff\xfe: {")
    with pytest.raises(UserError, match="not readable"):
        recorded.check(config, results)
