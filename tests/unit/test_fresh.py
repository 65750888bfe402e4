"""The configuration of fresh runs: the same models with other seeds, and nothing measured that nobody asked for."""

import json

import pytest
import yaml

import config_reading
import fresh
import plan
from config_reading import read, rebased
from toposcale.io.errors import UserError

GPT = {"d_model": 8, "n_layers": 1, "n_heads": 1}


def resolved(**keys):
    return config_reading.resolve({"run": "small", "models": {"a": GPT, "b": GPT}, **keys})


def seeds_of(config):
    return {(model.configuration, model.seed) for model in plan.models(config).values()}


@pytest.mark.parametrize(
    "keys",
    [
        {"seeds": [42]},
        {"seeds": [3, 42, 5]},
        {"sweep": {"models": ["a"], "learning_rate": [0.1, 0.2], "seeds": 5}},
        {"sweep": {"models": ["a", "b"], "seeds": [1, 9]}},
    ],
)
def test_fresh_runs_have_the_same_configurations_as_often_and_no_seed_twice(keys):
    config = resolved(**keys)
    again = config_reading.resolve(fresh.fresh_configuration(config, {"weights"}))
    before, after = plan.models(config), plan.models(again)
    assert sorted(model.configuration for model in before.values()) == sorted(
        model.configuration for model in after.values()
    )
    assert seeds_of(config).isdisjoint(seeds_of(again))
    assert {model.training["steps"] for model in after.values()} == {5000}
    # Fresh runs of fresh runs are fresh, too.
    third = config_reading.resolve(fresh.fresh_configuration(again, {"weights"}))
    assert seeds_of(third).isdisjoint(seeds_of(config) | seeds_of(again))


def test_only_what_was_found_in_is_measured():
    config = resolved(landscape={"enabled": True})
    of_weights = fresh.fresh_configuration(config, {"weights"})
    parts = ("embeddings", "landscape", "trajectory")
    assert not any(of_weights[part]["enabled"] for part in parts)
    everything = fresh.fresh_configuration(config, {"embeddings", "gradients", "trajectory"})
    assert all(everything[part]["enabled"] for part in parts)


def test_the_seeds_of_a_configuration_do_not_run_into_those_of_another():
    with pytest.raises(
        UserError, match=r"sweep.first_seed holds 999, but with sweep.seeds, 2, it must be at most 1000"
    ):
        resolved(sweep={"models": ["a"], "seeds": 2, "first_seed": 999})


def test_the_file_names_the_same_text_from_where_it_lies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for name in ("train", "validation"):
        (tmp_path / f"text/{name}.txt").write_text("words")
    corpus = {"source": "files", "train": ["train.txt"], "validation": ["validation.txt"]}
    file = tmp_path / "text/mine.yaml"
    file.write_text(yaml.safe_dump({"models": {"a": GPT}, "corpus": corpus}))
    record = tmp_path / "results/mine/confirm.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"findings": [], "obstacle": ""}))
    assert fresh.write(str(file)) == ""
    assert "nothing to confirm" in capsys.readouterr().err
    record.write_text(json.dumps({"findings": [{"source": "weights"}], "obstacle": "no text"}))
    assert fresh.write(str(file)) == ""
    assert "no text; nothing is trained" in capsys.readouterr().err
    record.write_text(json.dumps({"findings": [{"source": "weights"}], "obstacle": ""}))
    made = fresh.write(str(file))
    assert made == "results/mine/confirm.yaml"
    config = config_reading.resolve(rebased(read(made), [made]))
    assert (config["run"], config["seeds"]) == ("mine-confirm", [43])
    assert config["corpus"]["train"] == ["text/train.txt"]
    assert config["confirm"]["run"] == ""
