"""The configuration: what is coerced, what is refused and in which words, and that its reference is current."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import config_reading
from config_reference import keys_of, reference, schema_of_models
from paths import ROOT
from toposcale.forecasting.logs import loss_curves
from toposcale.forecasting.logs.table_files import read_schedule
from toposcale.forecasting.runs.schedules import MAX_STEPS
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError

MODELS = {"a": {"d_model": 8, "n_layers": 1, "n_heads": 2}}


def resolve(**keys):
    return config_reading.resolve({"models": MODELS, **keys})


def complaint(**keys):
    with pytest.raises(UserError) as error:
        resolve(**keys)
    return str(error.value)


def test_defaults_are_filled_in_at_every_depth():
    config = resolve(training={"steps": 300})
    assert config["training"]["steps"] == 300
    assert config["training"]["learning_rate"] == 3e-3
    assert config["weights"]["layers"]["include"] == ["*"]
    assert config["models"]["a"]["kind"] == "gpt"


def test_an_empty_section_means_its_defaults():
    assert resolve(training=None) == resolve()


def test_strings_of_the_command_line_are_coerced():
    config = resolve(seeds="[1, 2]", training={"steps": "300", "learning_rate": "3e-3", "warmup_steps": "10"})
    assert config["seeds"] == [1, 2]
    assert config["training"]["steps"] == 300
    assert config["training"]["learning_rate"] == 3e-3


@pytest.mark.parametrize("written", ["25e6", "25E6", "2.5e7", "2.5e+7", "25_000_000", "25000000", "+25000000.0"])
def test_a_number_may_be_written_in_every_usual_way(written):
    for text in (f"n_parameters: {written}", f"n_parameters: '{written}'"):
        model = {"kind": "table", "path": "x", **yaml.safe_load(text)}
        found = resolve(models={"m": model})["models"]["m"]["n_parameters"]
        assert (type(found), found) == (int, 25_000_000)
        assert (
            resolve(decision=yaml.safe_load(text.replace("n_parameters", "remaining")))["decision"]["remaining"] == 25e6
        )


@pytest.mark.parametrize("written", ["2.5", "1e400", "25 million", "0x", "1e3e3", "nan", "yes", "12:30:45x"])
def test_what_is_no_whole_number_is_shown_as_it_was_written(written):
    model = {"kind": "table", "path": "x", **yaml.safe_load(f"n_parameters: '{written}'")}
    assert f'config key models.m.n_parameters holds "{written}", but must be an integer' in complaint(
        models={"m": model}
    ).replace("holds 2.5,", 'holds "2.5",')


@pytest.mark.parametrize(
    ("key", "most"),
    [("n_parameters", 10**15), ("final_step", 10**7), ("tokens_per_step", 10**12), ("warmup_steps", 10**7)],
)
def test_a_number_that_no_memory_holds_is_refused(key, most):
    model = {"kind": "table", "path": "x", "n_parameters": 1}
    assert resolve(models={"m": {**model, key: most}})
    for huge in (most + 1, 10 * most, 10**400, "1e300"):
        assert f"but must be an integer at least {0 if key == 'warmup_steps' else 1}, at most {most:,}" in complaint(
            models={"m": {**model, key: huge}}
        )


def test_configuration_files_and_logs_have_one_bound_of_steps(tmp_path):
    assert config_reading.schema()["properties"]["training"]["properties"]["steps"]["maximum"] == MAX_STEPS
    path = tmp_path / "losses.csv"
    path.write_text(f"step,loss\n1,3\n{MAX_STEPS},2\n")
    loss_curves.read(path)
    path.write_text("step,loss\n1,3\n1e14,2\n")
    with pytest.raises(
        UserError, match=r"losses.csv: step holds 1e\+14, but .* up to 10,000,000; .*--tokens-per-step\)$"
    ):
        loss_curves.read(path)
    path.write_text(f"step,learning_rate\n0,3\n{MAX_STEPS + 1},2\n")
    with pytest.raises(UserError, match=r"losses.csv: step: 10,000,001, but a training has at most 10,000,000"):
        read_schedule(path)


def test_the_last_line_is_about_the_key_that_is_not_known():
    with pytest.raises(UserError) as error:
        config_reading.resolve({"modles": MODELS})
    assert str(error.value).splitlines()[-1] == "config key modles is unknown; did you mean models?"


def test_a_number_in_place_of_a_name_is_refused_not_turned_into_text():
    assert "config key run holds 7, but must be a text that is safe" in complaint(run=7)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"trainin": {}}, "config key trainin is unknown; did you mean training?"),
        ({"training": {"step": 5}}, "config key training.step is unknown; did you mean steps?"),
        (
            {"weights": {"layers": {"heads": False}}},
            "config key weights.layers.heads is unknown; known here: include, exclude",
        ),
        ({"training": {"steps": "abc"}}, 'config key training.steps holds "abc", but must be an integer'),
        ({"training": {"steps": 0}}, "config key training.steps holds 0, but must be an integer at least 1"),
        ({"training": {"steps": True}}, "config key training.steps holds true, but must be an integer"),
        ({"training": {"learning_rate": float("nan")}}, "config key training.learning_rate holds NaN, but"),
        ({"corpus": {"source": "wikitext"}}, "did you mean wikitext-2?"),
        (
            {"corpus": {"source": "files", "validation": ["x"]}},
            "config key corpus.train holds [], but must name a path",
        ),
        ({"corpus": {"source": "filez", "train": ["x"]}}, "did you mean files?"),
        (
            {"sweep": {"steps": [100]}},
            "sweep.steps holds [100], but must be empty, because sweep.models names no model",
        ),
        ({"sweep": {"models": ["b"]}}, 'sweep.models holds "b", but must name models of kind gpt'),
        ({"sweep": {"models": ["a"], "seeds": 2, "first_seed": 999}}, "with sweep.seeds, 2, it must be at most 1000"),
        (
            {"corpus": {"train": ["x"]}},
            'holds ["x"], but must be empty, because it is read only with corpus.source: files',
        ),
        (
            {"landscape": {"planes": {"random": []}}},
            "landscape.planes.random holds [], but must be a list of length at",
        ),
        (
            {"landscape": {"planes": {}}},
            "landscape.planes holds {}, but must be a section of keys of length at least 1",
        ),
        (
            {"landscape": {"planes": {"randm": [1.0]}}},
            'config key landscape.planes: the name "randm" must be one of random, top, negative, mixed',
        ),
        (
            {"sweep": {"seeds": 0}},
            "holds 0, but must be an integer at least 1, at most 1,000 or a list of length at least 1",
        ),
        ({"decision": {"remaining": -1}}, "decision.remaining holds -1, but must be a number at least 0 or null"),
        ({"seeds": [0, 4294967296]}, "config key seeds.1 holds 4294967296, but must be an integer at least 0"),
        (
            {"run": "../../x"},
            'config key run holds "../../x", but must be a text that is safe in a path: up to 64 letters',
        ),
        ({"run": "x\n"}, "but must be a text that is safe in a path"),
        ({"models": {"a/b": MODELS["a"]}}, 'config key models: the name "a/b" must be a text that is safe in a path'),
        ({"models": {"a": {"d_model": 8, "n_layers": 1}}}, "config key models.a.n_heads is missing"),
        ({"models": {"a": {"d_model": 8, "n_layers": 1, "n_heads": 3}}}, "must divide d_model, 8"),
        ({"models": {"a.seed1": MODELS["a"]}}, "without .seed, which marks the copies with other seeds"),
        ({"weights": {"null_draws": 1}}, "holds 1, but must be 0, or an integer from 2 to 1000: one draw has no"),
        ({"landscape": {"resolution": 20}}, "holds 20, but must be an odd integer from 3 to 1001"),
        ({"metrics": {"tables": ["{a}.csv"]}}, "but must be a path without braces, which Snakemake reads as"),
        ({"models": {}}, "config key models holds {}"),
        ({"seeds": [1, 1]}, "config key seeds holds [1, 1]"),
        ({"training": {"steps": 10, "warmup_steps": 10}}, "must be less than training.steps, 10"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key_and_what_would_be_right(keys, words):
    text = complaint(**keys)
    assert words in text
    assert "\n" not in text


def test_every_mistake_has_its_line():
    text = complaint(run="../x", training={"stepz": 1}, seeds=[])
    assert len(text.splitlines()) == 3


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
known = st.sampled_from([*config_reading.schema()["properties"], "extra"])


@given(st.dictionaries(known, anything, max_size=4))
def test_any_configuration_is_resolved_or_explained(keys):
    try:
        config = config_reading.resolve(keys)
    except UserError as error:
        lines = str(error).splitlines()
    else:
        lines = []
        assert config_reading.resolve(config) == config
    assert all(line.startswith("config key ") for line in lines)


def every_key():
    return keys_of(config_reading.schema())


def test_every_key_has_a_description_a_type_and_a_default():
    for path, part, needed in every_key():
        assert part["description"], path
        assert part.keys() & {"type", "oneOf", "anyOf"}, path
        # What is not known of a model from elsewhere stays unknown, and a schedule that is left out is a cosine.
        optional = path.startswith(("models.{name}.", "training.schedule", "landscape.planes."))
        assert ("default" in part or "properties" in part) + needed == 1 or optional, path


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"kind": "hub", "repo": "a/b"},
            "config key models.m.revisions is missing; for kind hub it must be a text that contains {step}",
        ),
        ({"kind": "folder"}, "config key models.m.path is missing"),
        ({"kind": "table", "path": "x"}, "config key models.m.n_parameters is missing"),
        ({"final_step": 9}, "config key models.m.final_step has no meaning for kind gpt; known here: "),
        (
            {"kind": "folder", "path": "x", "d_model": 8},
            "config key models.m.d_model has no meaning for kind folder; known here: family, embeddings, tokens_per_step,",
        ),
        ({"kind": "folder", "path": "x", "tokeniser": "y"}, "for kind folder; did you mean tokenizer?"),
        ({"kind": ""}, 'models.m.kind holds "", but must be one of gpt, hub,'),
        (
            {"kind": "hubb"},
            'models.m.kind holds "hubb", but must be one of gpt, hub, folder, monitor, table, planned; did',
        ),
        ({"kind": "planned", "n_parameters": 9, "schedule": {"shape": "wsd"}}, "models.m.schedule.peak is missing"),
        (
            {"kind": "hub", "repo": "a/b", "revisions": "main", "steps": [1]},
            'holds "main", but must be a text that contains {step}',
        ),
        (
            {"kind": "hub", "repo": "../x", "revisions": "step{step}", "steps": [1]},
            'models.m.repo holds "../x", but must be the name of a repository, such as EleutherAI/pythia-70m',
        ),
    ],
)
def test_a_model_needs_the_keys_of_its_kind(model, words):
    assert words in complaint(models={"m": model})


def test_paths_are_relative_to_the_file_that_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "run.yaml"
    paths = {
        "a": {"kind": "table", "n_parameters": 9, "path": "losses.csv"},
        "b": {"kind": "folder", "path": "/absolute", "tokenizer": "../t"},
        "c": {"kind": "monitor", "path": "m"},
        "d": {"kind": "planned", "n_parameters": 9, "schedule": "plan.csv"},
        "7": {**MODELS["a"], "kind": "gpt", "schedule": {"shape": "linear"}},
    }
    content = {
        "models": paths,
        "metrics": {"tables": ["t.csv"], "harness": "evals"},
        "corpus": {"source": "files", "train": ["t/*.txt"], "validation": ["v.txt"]},
        "training": {"schedule": "plan.csv"},
        "hub": {"cache": "cache"},
    }
    file.write_text(yaml.safe_dump(content))
    on_top = {**content, "metrics": {"tables": ["t.csv"], "harness": "of the command line"}}
    found = config_reading.resolve(on_top, [file])
    assert found["models"] == {
        "a": {**paths["a"], "path": "mine/losses.csv"},
        "b": {"kind": "folder", "path": "/absolute", "tokenizer": "t"},
        "c": {"kind": "monitor", "path": "mine/m"},
        "d": {**paths["d"], "schedule": "mine/plan.csv"},
        "7": paths["7"],
    }
    assert (found["corpus"]["train"], found["corpus"]["validation"]) == (["mine/t/*.txt"], ["mine/v.txt"])
    assert (found["training"]["schedule"], found["hub"]["cache"]) == ("mine/plan.csv", "mine/cache")
    assert found["metrics"]["tables"] == ["mine/t.csv"]
    assert found["metrics"]["harness"] == "of the command line"
    assert found["run"] == "run"


def test_every_file_that_is_named_must_be_there(tmp_path):
    (tmp_path / "there.csv").write_text("model,step,metric,value\nm,1,accuracy,0.5\n")
    models = {"m": {"kind": "folder", "path": str(tmp_path / "gone")}}
    models |= {"t": {**models["m"], "path": str(tmp_path), "tokenizer": str(tmp_path / "gone")}}
    models |= {"u": {**models["t"], "tokenizer": str(tmp_path)}}
    config = {
        "models": models,
        "metrics": {"tables": [str(tmp_path / name) for name in ("there.csv", "t.csv")]},
        "training": {"schedule": str(tmp_path / "gone")},
    }
    assert config_reading.resolve(config)
    with pytest.raises(UserError) as error:
        config_reading.resolve(config, files_exist=True)
    lines = str(error.value).splitlines()
    assert [line.split(", which does not exist; a path is relative to the configuration")[0] for line in lines] == [
        f'config key metrics.tables.1 holds "{tmp_path}/t.csv"',
        f'config key models.m.path holds "{tmp_path}/gone"',
        f'config key models.t.tokenizer holds "{tmp_path}/gone"',
        f'config key models.u.tokenizer holds "{tmp_path}", but must be a folder with a tokenizer: tokenizer.json or '
        "tokenizer_config.json or tokenizer.model or vocab.json or vocab.txt",
        f'config key training.schedule holds "{tmp_path}/gone"',
    ]


@pytest.mark.parametrize(
    ("name", "content", "mistake"),
    [
        ("a.csv", b"step,perplexity\n1,2\n", "no column for loss; its columns are step, perplexity"),
        ("empty.csv", b"", "not a readable Parquet or CSV table"),
        ("noise", b"\0\1\2", "not a text in UTF-8"),
        ("state.json", b'{"log_history"', "not JSON"),
        ("trainer_state.json", b"{}", "not the state of a Trainer"),
    ],
)
def test_a_loss_file_that_tells_no_losses_is_refused_while_planning(tmp_path, name, content, mistake):
    path = tmp_path / name
    path.write_bytes(content)
    models = {"m": {"kind": "table", "path": str(path), "n_parameters": 9}}
    with pytest.raises(UserError) as error:
        config_reading.resolve({"models": models}, files_exist=True)
    [line] = str(error.value).splitlines()
    assert line.startswith(
        f"config key models.m.path holds {config_reading.shown(str(path))}, but must be a table with"
    )
    assert f": {path}: {mistake}" in line
    path.with_suffix(".csv").write_text("step,loss\n1,2\n")
    models["m"]["path"] = str(path.with_suffix(".csv"))
    assert config_reading.resolve({"models": models}, files_exist=True)


def test_losses_pattern_reads_the_log_while_planning(tmp_path):
    path = tmp_path / "main.log"
    path.write_text("".join(f"at {step / 1000}k the loss is {9 - step / 1000}\n" for step in range(100, 2000, 100)))
    model = {"kind": "table", "path": str(path), "n_parameters": 9}
    with pytest.raises(UserError, match="19 lines with a loss were not understood"):
        config_reading.resolve({"models": {"m": model}}, files_exist=True)
    model["losses_pattern"] = r"at (?P<step>[\d.]+k) .* (?P<loss>[\d.]+)"
    assert config_reading.resolve({"models": {"m": model}}, files_exist=True)
    model["losses_pattern"] = r"at (?P<step>[\d.]+k)"
    with pytest.raises(UserError, match=r"config key models.m.losses_pattern .*needs groups called step and loss"):
        config_reading.resolve({"models": {"m": model}})


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        ("step,loss\n1,2\n", "no column model, metric, value; it needs model, step, metric, value, and has step, loss"),
        ("model,step,metric,value\nm,1,accuracy,high\n", "it has a column of another type"),
        ("", "not a readable Parquet or CSV table"),
    ],
)
def test_a_table_of_metrics_without_its_columns_is_refused_while_planning(tmp_path, content, mistake):
    path = tmp_path / "scores.csv"
    path.write_text(content)
    config = {"models": {"m": {"d_model": 8, "n_layers": 1, "n_heads": 1}}, "metrics": {"tables": [str(path)]}}
    assert config_reading.resolve(config)
    with pytest.raises(UserError) as error:
        config_reading.resolve(config, files_exist=True)
    [line] = str(error.value).splitlines()
    key = f"config key metrics.tables.0 holds {config_reading.shown(str(path))}"
    assert line.startswith(f"{key}, but must be a table of metrics: {path}: {mistake}")


def test_every_section_refuses_unknown_keys():
    parts = [part for _, part, _ in every_key()]
    [entries] = config_reading.schema()["properties"]["models"]["patternProperties"].values()
    sections = [entry for part in [*parts, entries] for entry in part.get("oneOf", [part]) if "properties" in entry]
    assert len(sections) > 20
    assert all(section["additionalProperties"] is False for section in sections)


def test_the_reference_page_is_current():
    assert (ROOT / "config" / "README.md").read_text() == reference(), "run make reference"


def test_the_schema_is_that_of_the_models():
    assert config_reading.schema() == schema_of_models(), "run make reference"


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_the_schema_is_right_for_what_is_shipped(path):
    content = yaml.safe_load(path.read_text())
    checked = Draft202012Validator(config_reading.schema())
    assert list(checked.iter_errors(content)) == []
    assert list(checked.iter_errors({**content, "trainin": {}})) != []
    assert list(checked.iter_errors({**content, "models": {"a": {"kind": "table"}}})) != []


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_configuration_is_right(path):
    config = config_reading.resolve(yaml.safe_load(path.read_text()))
    assert config["models"]


def test_the_sizes_of_the_shipped_families_are_what_their_names_say():
    from toposcale.training.gpt import GPTShape

    paper = {"tiny-3k": 2936, "small-7k": 7408, "med-21k": 20640, "large-46k": 46368, "xl-97k": 97200}
    plan = {"plan-1k": 1000, "plan-5k": 5000, "plan-10k": 10000, "plan-25k": 25000, "plan-50k": 50000}
    for file, sizes, tolerance in [("config", paper, 0), ("paper", paper, 0), ("plan", plan, 0.11)]:
        config = config_reading.resolve(yaml.safe_load((ROOT / "config" / f"{file}.yaml").read_text()))
        vocab_size = 128 if config["corpus"]["tokenizer"] == "characters" else config["corpus"]["vocab_size"]
        for name, model in config["models"].items():
            sizes_of = (model["d_model"], model["n_layers"], model["n_heads"])
            shape = GPTShape(vocab_size, config["training"]["context"], *sizes_of)
            assert shape.n_parameters == pytest.approx(sizes[name], rel=tolerance, abs=0), name


def keys_set_in(content, path=""):
    """Dotted paths of the keys of a configuration, those of a model as `models.{name}.KEY`."""
    for key, inner in content.items() if isinstance(content, dict) else ():
        here = config_reading.join(path, "{name}" if path == "models" else key)
        yield here
        yield from keys_set_in(inner, here)


PAGES = [path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]]
PRINTED = [block for page in PAGES for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)]


def test_every_key_is_used_in_a_configuration_or_named_in_full_on_a_page():
    texts = [*PRINTED, *(path.read_text() for path in (ROOT / "config").glob("*.yaml"))]
    used = {key for text in texts for key in keys_set_in(yaml.safe_load(text))}
    # In backticks: `weights.seed`, or with a value, `weights.seed: 7`.
    named = {name for page in PAGES for name in re.findall(r"`([a-z_.{}]+)(?:: [^`]+)?`", page)}
    held = [path for path, part, _ in every_key() if "properties" not in part]
    assert [path for path in held if path not in used | named] == []


@pytest.mark.parametrize("text", PRINTED, ids=lambda text: text.splitlines()[1].strip())
def test_every_configuration_that_a_page_prints_is_right(text):
    assert config_reading.resolve({"models": MODELS} | yaml.safe_load(text))


def test_the_last_line_of_a_run_is_its_report_and_what_is_not_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"run": "mine", "models": MODELS}))
    warnings = tmp_path / "results/mine/tables/warnings.parquet"
    for count, more in (
        ("0", ""),
        ("1", " (1 checkpoint left out; its warnings say why)"),
        ("1200", " (1,200 checkpoints left out; its warnings say why)"),
    ):
        tables.write(schemas.TABLES["warnings"].schema.empty_table(), warnings, {"left_out": count})
        last = config_reading.outputs("mine.yaml").splitlines()[-1]
        assert last == f"Report:   results/mine/report.html{more}"
