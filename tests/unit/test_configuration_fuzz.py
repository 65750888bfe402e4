"""Configurations that nobody would write on purpose: each is resolved and planned, or explained in one line a mistake."""

import os.path
import re

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import config_reading
import plan
from config import MAX_CHECKPOINTS
from toposcale.io.errors import UserError

MODELS = {"a": {"d_model": 8, "n_layers": 1, "n_heads": 2}}
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

TRICKS = [
    *("../../x", "/etc/passwd", "..", ".", "", " ", "-rf", "~", "a/b", "a\\b", "a\n", "\0", "\ud800", "a" * 5000),
    *("$(touch owned)", "`touch owned`", "; rm -rf .", "{step}", "{step", "{0.__class__}", "%s", "'\""),
    *("1e3", "1_000", "0x10", "010", "1" * 5000, "2020-13-45", "12:30:45", "[1, 2", "{a: b}", "- a", "&a [*a]"),
    *("!!python/object/apply:os.system [touch owned]", "yes", "no", "null", "~", "nan", ".inf"),
]
NUMBERS = [-1, 0, 1, -(10**9), 2**31, 2**63, 10**400, 0.5, 1000.0, -0.0, 1e308, float("inf"), float("nan")]
PLAIN = st.sampled_from([*TRICKS, *NUMBERS, None, True, False]) | st.text(max_size=5) | st.integers()
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=2), max_leaves=4
)


def near(schema):
    """Values that a key of this schema could hold, and, now and then, something else in any place."""
    if alternatives := schema.get("oneOf", schema.get("anyOf")):
        return st.one_of(*map(near, alternatives))
    kind = schema["type"]
    if "const" in schema:
        right = st.just(schema["const"])
    elif "enum" in schema:
        right = st.sampled_from(schema["enum"])
    elif kind == "object":
        right = section(schema)
    elif kind == "array":
        right = st.lists(near(schema["items"]), max_size=3)
    elif kind == "integer":
        right = st.integers(schema.get("minimum", 0), schema.get("maximum", 10**9))
        right |= st.sampled_from([schema.get("minimum", 0), schema.get("maximum", 10**9)])
    elif kind == "number":
        right = st.floats(0, 1e9) | st.integers(0, 100)
    elif kind == "null":
        right = st.none()
    elif kind == "boolean":
        right = st.booleans()
    else:
        right = st.sampled_from(["a", "a/b", "step{step}", "data/*.txt", "step-{step}.safetensors"])
    return st.one_of(right, right, right, right, ANYTHING)


def section(schema):
    """Some keys of a section, names of the user's own where it has them, and sometimes an unknown one."""
    known = {key: near(inner) for key, inner in schema.get("properties", {}).items()}
    known |= {key: near(schema["additionalProperties"]) for key in schema.get("propertyNames", {}).get("enum", ())}
    some = st.fixed_dictionaries({}, optional=known)
    for others in schema.get("patternProperties", {}).values():
        names = st.sampled_from(["a", "b", 7, "7", "a.seed1", *TRICKS])
        return st.dictionaries(names, near(others), max_size=3)
    unknown = st.dictionaries(st.sampled_from(["extra", "step", 7, None, *TRICKS]), ANYTHING, max_size=1)
    return st.one_of(some, some, st.builds(lambda a, b: {**a, **b}, some, unknown))


def planned_or_explained(keys):
    """The models of a configuration; None where it was refused, which has to be done in lines that name a key."""
    given = yaml.safe_dump(keys)
    try:
        config = config_reading.resolve(keys)
    except UserError as error:
        refusals = str(error).splitlines() or [""]
    else:
        refusals = []
        try:
            models = plan.models(config)
        except UserError as error:
            refusals = [f"config key models: {error}"]
    for line in refusals:
        assert line.startswith("config key "), line
        assert line.isprintable(), line
    if refusals:
        return None
    assert yaml.safe_dump(keys) == given, "the user's configuration was changed"
    assert config_reading.resolve(config) == config
    assert os.path.normpath(f"results/{config['run']}") == f"results/{config['run']}"
    assert SAFE.fullmatch(config["run"])
    assert all(SAFE.fullmatch(name) for name in models)
    assert sum(len(model.steps) for model in models.values() if model.kind == "gpt") <= (MAX_CHECKPOINTS)
    for model in models.values():
        assert all(isinstance(step, int) and step >= 0 for step in model.steps)
        assert list(model.steps) == sorted(set(model.steps))
    return models


QUICK = settings(derandomize=True, max_examples=100, suppress_health_check=list(HealthCheck), database=None)


@QUICK
@given(section(config_reading.schema()))
def test_any_configuration_is_planned_or_explained(keys):
    planned_or_explained(keys)


@QUICK
@given(section({"properties": {**config_reading.schema()["properties"]}}))
def test_any_configuration_beside_a_model_that_is_right_is_planned_or_explained(keys):
    planned_or_explained({**keys, "models": MODELS})


def leaves(schema, path=()):
    for key, inner in schema.get("properties", {}).items():
        if "properties" in inner:
            yield from leaves(inner, (*path, key))
        else:
            yield (*path, key)


def holding(path, value):
    for key in reversed(path):
        value = {key: value}
    return {"models": MODELS, **value}


LEAVES = [path for path in leaves(config_reading.schema()) if path != ("models",)]


@pytest.mark.parametrize("path", LEAVES, ids=".".join)
def test_every_key_survives_every_trick(path):
    for value in [*TRICKS, *NUMBERS, None, True, [], {}, [[]], {"a": {"b": 1}}, [None]]:
        planned_or_explained(holding(path, value))


UNSAFE = [
    "../../x",
    "/x",
    "..",
    ".",
    "",
    "a/b",
    "a\\b",
    "a b",
    "a\n",
    "a\0",
    "-a",
    ".a",
    "~",
    "$(x)",
    "a;b",
    "é",
    "a" * 65,
]


@pytest.mark.parametrize("name", UNSAFE)
def test_a_name_that_is_unsafe_in_a_path_is_refused(name):
    assert planned_or_explained({"run": name, "models": MODELS}) is None
    assert planned_or_explained({"models": {name: MODELS["a"]}}) is None


def test_a_whole_number_written_with_a_point_is_a_whole_number():
    config = config_reading.resolve({"models": MODELS, "seeds": [7.0, 8.0], "training": {"steps": 300.0}})
    assert [type(seed) for seed in config["seeds"]] == [int, int]
    assert list(plan.models(config)) == ["a", "a.seed8"]


def test_more_checkpoints_than_can_be_planned_are_refused_before_they_are_listed():
    with pytest.raises(UserError, match="checkpoint_every holds 1, which makes"):
        config_reading.resolve({"models": MODELS, "training": {"steps": 10**7, "checkpoint_every": 1}})


def test_a_configuration_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    deep = "[" * 3000
    for keys in ({"seeds": loop}, {"corpus": {"train": loop}}, {"extra": loop}, {"seeds": deep}):
        with pytest.raises(UserError):
            config_reading.resolve({"models": MODELS, **keys})
