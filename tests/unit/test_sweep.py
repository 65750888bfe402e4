"""Sweeps: which runs they make, under which names, seeds and settings."""

import pytest

import config_reading
import plan
from toposcale.io.errors import UserError

GPT = {"d_model": 8, "n_layers": 1, "n_heads": 1}
TRAINING = {"steps": 20, "checkpoint_every": 10, "warmup_steps": 2, "batch_size": 4}


def resolved(sweep, **keys):
    models = {"a": {**GPT, "training": {"batch_size": 8}}, "b": GPT, "c": GPT}
    return config_reading.resolve({"models": models, "training": TRAINING, "sweep": sweep, **keys})


def models(sweep, **keys):
    return plan.models(resolved(sweep, **keys))


SWEEP = {"models": ["a", "b"], "learning_rate": [0.003, 0.01], "weight_decay": [0], "seeds": 3}


def test_every_combination_is_made_with_every_seed_and_what_is_not_swept_stays():
    found = models(SWEEP)
    assert len(found) == 1 + 2 * 2 * 1 * 3
    assert found["c"].configuration == "c"
    run = next(model for model in found.values() if model.configuration == "a.lr0.01.wd0")
    assert (run.entry, run.training["learning_rate"], run.training["weight_decay"]) == ("a", 0.01, 0)
    assert run.training["batch_size"] == 8
    assert found["c"].training["batch_size"] == 4
    assert run.name == f"a.lr0.01.wd0.seed{run.seed}"


def test_a_number_of_seeds_gives_every_run_its_own_and_a_list_the_same_to_every_configuration():
    seeds = [model.seed for name, model in models(SWEEP).items() if name != "c"]
    assert len(set(seeds)) == len(seeds)
    listed = models({**SWEEP, "seeds": [7, 9]})
    assert {model.seed for name, model in listed.items() if name != "c"} == {7, 9}


def test_what_is_added_to_a_sweep_changes_nothing_that_was_there():
    before = models(SWEEP)
    more = {**SWEEP, "learning_rate": [0.003, 0.01, 0.03], "weight_decay": [0, 0.1], "seeds": 5}
    after = models(more)
    assert {name: after[name] for name in before} == before
    assert len(after) == 1 + 2 * 3 * 2 * 5


def test_a_swept_length_makes_other_checkpoints_and_a_swept_shape_another_schedule():
    found = models({"models": ["c"], "steps": [20, 30], "schedule": ["cosine", "linear"]})
    assert {model.steps for name, model in found.items() if model.entry == "c"} == {(0, 10, 20), (0, 10, 20, 30)}
    shapes = {
        model.configuration: model.settings["schedule"]["shape"] for model in found.values() if model.entry == "c"
    }
    assert shapes["c.steps30.linear"] == "linear"
    assert shapes["c.steps20.cosine"] == "cosine"
    assert all(model.training["schedule"]["steps"] == model.steps[-1] for model in found.values() if model.entry == "c")


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"models": ["d"]}, 'sweep.models holds "d", but must name models of kind gpt'),
        (
            {"learning_rate": [0.1]},
            "sweep.learning_rate holds [0.1], but must be empty, because sweep.models names no model",
        ),
        (
            {"models": ["a"], "steps": [2]},
            "warmup_steps holds 2, but must be less than training.steps, 2 (of a.steps2)",
        ),
        ({"models": ["a"], "seeds": 0}, "sweep.seeds holds 0"),
        ({"models": ["a"], "seeds": [1, 1]}, "sweep.seeds holds [1, 1]"),
        ({"models": ["a"], "seeds": 1000, "steps": [1000], "batch_size": [1, 2]}, "more than 100000 checkpoints"),
    ],
)
def test_a_mistake_in_a_sweep_is_said_in_a_line(sweep, words):
    with pytest.raises(UserError) as error:
        resolved(sweep)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_seeds_of_a_sweep_may_come_as_text_from_the_command_line():
    assert resolved({**SWEEP, "seeds": "3"})["sweep"]["seeds"] == 3
    assert resolved({**SWEEP, "seeds": "[3, 4]"})["sweep"]["seeds"] == [3, 4]
