"""Configuration files: what no plain YAML is, is refused in a line with the file; a run has the name of its file."""

import pytest

import config_reading
from toposcale.io.errors import UserError

MODEL = "models:\n  a: {d_model: 8, n_layers: 1, n_heads: 1}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(folder, text):
    (folder / "mine.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        config_reading.read("mine.yaml")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_code_is_refused(folder):
    code = "__use_yte__: true\n__definitions__:\n  - import os\n  - os.mkdir('owned')\n"
    assert complaint(folder, code + MODEL).startswith("mine.yaml: holds __use_yte__, with which Snakemake runs Python")


@pytest.mark.parametrize(
    "text", ["models: &a\n  b: *a\n", "models: {}\nseeds: &a [1, [*a]]\n", "&a\nmodels: {}\nseeds: [*a]\n"]
)
def test_a_file_that_holds_itself_is_refused(folder, text):
    assert "what begins there holds itself, by an alias" in complaint(folder, text)


def test_a_file_of_which_aliases_make_more_than_memory_holds_is_refused(folder):
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]" for n in range(1, 12)]
    assert "with its aliases written out it holds more than 1,000,000 values" in complaint(folder, "\n".join(lines))


def test_aliases_that_say_something_once_are_read(folder):
    text = "common: &common {kind: folder, path: x}\nmodels:\n  a: {<<: *common, path: y}\n  b: {<<: *common}\n"
    (folder / "mine.yaml").write_text(text)
    models = config_reading.read("mine.yaml")["models"]
    assert models == {"a": {"kind": "folder", "path": "y"}, "b": {"kind": "folder", "path": "x"}}


@pytest.mark.parametrize(("name", "read"), [("01", "1"), ("1.50", "1.5"), ("no", "False"), ("~", "None")])
def test_a_name_that_yaml_reads_as_another_one_is_refused(folder, name, read):
    said = f"mine.yaml, line 2: YAML reads the name {name} as {read}; put it in quotes"
    assert complaint(folder, f"models:\n  {name}: {{}}\n") == said
    (folder / "mine.yaml").write_text(f'models: {{"{name}": {{}}, 7: {{}}, 1.5: {{}}}}\n')
    assert list(config_reading.read("mine.yaml")["models"]) == [name, 7, 1.5]


@pytest.mark.parametrize(("number", "read"), [("010000", 4096), ("-017", -15), ("1:30", 90), ("1:30.5", 90.5)])
def test_a_number_that_yaml_reads_as_octal_or_sexagesimal_is_refused(folder, number, read):
    said = f"mine.yaml, line 1: YAML reads {number} as {read}; write the number that is meant"
    assert complaint(folder, f"training: {{steps: {number}}}\n") == said


def test_a_path_may_begin_with_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    models = {"a": {"kind": "folder", "path": "~/runs/a"}}
    (folder / "mine.yaml").write_text(f"models: {models}\n")
    resolved = config_reading.resolve({"models": models}, ["mine.yaml"])
    assert resolved["models"]["a"]["path"] == "/home/me/runs/a"


@pytest.mark.parametrize(("names", "lines"), [(("a", "a"), (2, 4)), (("7", '"7"'), (2, 4))])
def test_two_models_of_one_name_are_refused_and_both_lines_named(folder, names, lines):
    text = f"models:\n  {names[0]}: {{d_model: 8}}\n  b: {{}}\n  {names[1]}: {{d_model: 16}}\n"
    said = f"mine.yaml: {names[0]} stands twice in one section, in lines {lines[0]} and {lines[1]}"
    assert complaint(folder, text) == said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("models: [\n", 2),
        ("run: a\nmodels:\n\ta: 1\n", 3),
        ("run: a\n  seeds: [1]\n", 2),
        ("run: a\nseeds: !!python/object/apply:os.mkdir [owned]\n", 2),
    ],
)
def test_what_is_no_yaml_is_named_by_file_and_line(folder, text, line):
    assert complaint(folder, text).startswith(f"mine.yaml, line {line}: not YAML (")
    assert not (folder / "owned").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", 'mine.yaml: holds ["a"], but a configuration is a section of keys'),
        ("# run: a\n", "mine.yaml: empty, but a configuration is a section of keys"),
        ("[" * 3000, "mine.yaml: nested too deeply"),
        ("run: \0\n", "mine.yaml: not YAML ("),
    ],
)
def test_what_else_is_no_configuration(folder, text, said):
    assert said in complaint(folder, text)


def test_a_file_that_is_not_there(folder):
    with pytest.raises(UserError, match=r"^absent\.yaml: no readable configuration \(No such file or directory\)$"):
        config_reading.read("absent.yaml")


def resolved(path, on_top=None, **options):
    return config_reading.resolve(config_reading.read(path) | (on_top or {}), [path], **options)


def test_a_run_has_the_name_of_its_file_unless_one_is_given(folder):
    (folder / "mine.yaml").write_text(MODEL)
    assert resolved("mine.yaml")["run"] == "mine"
    assert resolved("mine.yaml", {"run": "other"})["run"] == "other"
    (folder / "named.yaml").write_text("run: default\n" + MODEL)
    assert resolved("named.yaml")["run"] == "default"


def test_the_file_of_another_workflow_that_uses_this_one_names_no_run(folder):
    (folder / "outer.yaml").write_text("toposcale:\n  seeds: [1]\n")
    config = {"models": {"a": {"d_model": 8, "n_layers": 1, "n_heads": 1}}}
    assert config_reading.resolve(config, [folder / "outer.yaml"])["run"] == "default"


def test_paths_are_shown_as_short_as_they_can_be(folder, monkeypatch):
    (folder / "data").mkdir()
    (folder / "here").mkdir()
    (folder / "data" / "mine.yaml").write_text("models:\n  a: {kind: folder, path: ../d1}\n")
    monkeypatch.chdir(folder / "here")
    with pytest.raises(UserError) as error:
        resolved("../data/mine.yaml", files_exist=True)
    assert str(error.value).startswith('config key models.a.path holds "../d1", which does not exist; ')


def test_a_path_that_is_no_text_is_refused_in_a_line(folder):
    (folder / "mine.yaml").write_text("models:\n  a: {kind: folder, path: 5}\n")
    with pytest.raises(UserError, match=r"^config key models\.a\.path holds 5, but must be a path without braces"):
        resolved("mine.yaml")


def test_a_path_in_a_linked_folder_is_found_where_the_link_leads(folder):
    (folder / "far" / "configurations").mkdir(parents=True)
    (folder / "far" / "d1").mkdir()
    (folder / "near").symlink_to(folder / "far" / "configurations")
    (folder / "near" / "mine.yaml").write_text("models:\n  a: {kind: folder, path: ../d1}\n")
    assert resolved("near/mine.yaml")["models"]["a"]["path"] == "far/d1"


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "folder"},
        {"kind": "monitor"},
        {"kind": "table", "n_parameters": 9},
        {"kind": "planned", "n_parameters": 9, "schedule": ...},
    ],
    ids=lambda entry: entry["kind"],
)
@pytest.mark.parametrize(
    ("path", "why"), [("/", "is the root of the file system"), (5000 * "x", r"is not a path \(file name too long\)")]
)
def test_resolve_refuses_a_path_that_no_file_can_have(folder, entry, path, why):
    entry = entry | {"schedule" if "schedule" in entry else "path": path}
    with pytest.raises(UserError, match=rf"^config key models\.f\.\w+ holds \S{{3,82}}, .*{why}.*$") as error:
        config_reading.resolve({"models": {"f": entry}}, files_exist=True)
    assert len(str(error.value).splitlines()) == 1
