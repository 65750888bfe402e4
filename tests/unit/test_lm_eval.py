import json
import os
from pathlib import Path

import pytest

from toposcale.analysis.lm_eval import Evaluated, read_results, scores
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError

SHARED = Path(os.environ.get("TOPOSCALE_SHARED_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

OLDER = {
    "results": {
        "arc_easy": {"acc": 0.25, "acc_stderr": 0.01, "acc_norm": 0.3, "acc_norm_stderr": 0.01},
        "lambada_openai": {"ppl": 3000.5, "ppl_stderr": 90.0, "acc": 0, "acc_stderr": 0.0},
    },
    "versions": {"arc_easy": 0},
    "config": {
        "model": "hf-causal",
        "model_args": "use_accelerate=True,pretrained=EleutherAI/pythia-v1.1-70m,revision=step128",
        "num_fewshot": 0,
    },
}
NEWER = {
    "results": {
        "mmlu": {"alias": "mmlu", "acc,none": 0.23, "acc_stderr,none": 0.004},
        "gsm8k": {
            "alias": "gsm8k",
            "exact_match,strict-match": 0.01,
            "exact_match_stderr,strict-match": 0.002,
            "exact_match,flexible-extract": 0.02,
            "sample_len": 1319,
        },
        "arc_easy": {"alias": "arc_easy", "acc,none": 0.5, "acc_stderr,none": "N/A"},
    },
    "groups": {"mmlu": {"alias": "mmlu", "acc,none": 0.23}},
    "n-shot": {"gsm8k": 5, "arc_easy": 0},
    "config": {
        "model": "hf",
        "model_args": "pretrained=EleutherAI/pythia-70m,revision=step1000,dtype=float32",
        "model_revision": "step1000",
    },
    "model_name": "EleutherAI/pythia-70m",
}
PYTHIA = {"small": Evaluated("EleutherAI/pythia-70m")}


def changed(results: dict, **config) -> dict:
    return results | {"config": results["config"] | config}


def save(folder: Path, results: object, name: str = "results.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(results))
    return folder


def test_older_shape():
    assert scores(OLDER) == {
        "arc_easy.acc": 0.25,
        "arc_easy.acc_norm": 0.3,
        "lambada_openai.ppl": 3000.5,
        "lambada_openai.acc": 0.0,
    }


def test_newer_shape():
    assert scores(NEWER) == {
        "mmlu.acc": 0.23,
        "gsm8k.exact_match.strict-match.5-shot": 0.01,
        "gsm8k.exact_match.flexible-extract.5-shot": 0.02,
        "arc_easy.acc": 0.5,
    }


def test_only_wanted_tasks():
    assert set(scores(NEWER, tasks=["arc_*"])) == {"arc_easy.acc"}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_args": "pretrained=EleutherAI/pythia-70m"},
        {"model_args": {"pretrained": "EleutherAI/pythia-70m", "revision": "step1000"}, "model_revision": None},
        {"model_args": "pretrained=EleutherAI/pythia-70m,revision=step1000", "model_revision": "main"},
    ],
)
def test_the_step_stands_in_either_place(tmp_path, config):
    rows = read_results(save(tmp_path, changed(NEWER, **config)), PYTHIA, tasks=["arc_easy"])
    assert rows == [{"model": "small", "step": 1000, "metric": "arc_easy.acc", "value": 0.5}]


def test_read_results_by_repository_folder_or_name(tmp_path):
    save(tmp_path / "pythia-70m", OLDER)  # of a repository that goes by another name
    save(tmp_path / "elsewhere", NEWER)
    save(tmp_path / "elsewhere", changed(NEWER, model_args="pretrained=a/b,revision=step5"), "other.json")
    rows = read_results(tmp_path, {"pythia-70m": Evaluated()}, tasks=["arc_easy"])
    assert [(row["step"], row["metric"]) for row in rows] == [
        (128, "arc_easy.acc"),
        (128, "arc_easy.acc_norm"),
        (1000, "arc_easy.acc"),
    ]


@pytest.mark.parametrize("stated", ["EleutherAI/pythia-160m", "gpt2"])
@pytest.mark.parametrize("known", [{}, {"pythia-160m": Evaluated("EleutherAI/pythia-160m")}])
def test_read_results_refuses_a_file_of_another_folder(tmp_path, stated, known):
    save(tmp_path / "pythia-70m", changed(NEWER, model_args=f"pretrained={stated},revision=step5"))
    with pytest.raises(UserError, match=rf"it names the model {stated}, but lies in the folder of pythia-70m"):
        read_results(tmp_path, {"pythia-70m": Evaluated(), **known})


@pytest.mark.parametrize(
    ("entry", "model", "stated"),
    [
        ("pythia-70m", Evaluated(), "EleutherAI/pythia-v1.1-70m"),
        ("mine", Evaluated("EleutherAI/pythia-70m"), "EleutherAI/pythia-v1.1-70m"),
        ("mine", Evaluated("EleutherAI/pythia-70m"), "copies/pythia-70m"),
        ("mine", Evaluated("a/b"), "c/mine"),
        ("pythia-v1.1-70m", Evaluated(), "EleutherAI/pythia-70m"),
    ],
)
def test_read_results_by_the_last_part_of_a_repository(tmp_path, entry, model, stated):
    save(tmp_path, changed(NEWER, model_args=f"pretrained={stated}"))
    rows = read_results(tmp_path, {"other": Evaluated("x/other"), entry: model}, tasks=["mmlu"])
    assert [row["model"] for row in rows] == [entry]


def test_other_sizes_are_other_models(tmp_path):
    save(tmp_path, changed(NEWER, model_args="pretrained=EleutherAI/pythia-v1.1-70m-deduped"))
    with pytest.raises(UserError, match="no scores of small"):
        read_results(tmp_path, PYTHIA)


def test_a_glob_of_any_depth(tmp_path):
    save(tmp_path / "a" / "b", NEWER, "results_1.json")
    save(tmp_path / "a", changed(NEWER, model_args="x"), "samples.json")
    assert len(read_results(f"{tmp_path}/**/results_*.json", PYTHIA)) == 4
    with pytest.raises(UserError, match="no file matches it as a pattern"):
        read_results(f"{tmp_path}/*.txt", PYTHIA)


def test_read_results_of_a_metric_with_two_values(tmp_path):
    save(tmp_path, NEWER, "a.json")
    save(tmp_path, NEWER, "b.json")
    assert len(read_results(tmp_path, PYTHIA)) == 4
    save(tmp_path, NEWER | {"results": {"arc_easy": {"acc,none": 0.6}}}, "c.json")
    with pytest.raises(UserError, match=r"c\.json: arc_easy\.acc of small at step 1000 is 0\.6, but 0\.5 in"):
        read_results(tmp_path, PYTHIA)


def test_nan_is_said(tmp_path):
    save(tmp_path, NEWER | {"results": {"arc_easy": {"acc,none": float("nan")}}, "groups": {}})
    with pytest.warns(RuntimeWarning, match=r"arc_easy\.acc is NaN"):
        (row,) = read_results(tmp_path, PYTHIA)
    assert row["value"] != row["value"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"results\.json: not readable JSON"),
        ("[1]", "not a result of lm-evaluation-harness"),
        ('{"results": {}}', "not a result of lm-evaluation-harness"),
        ('{"results": {"arc_easy": 0.5}, "config": {}}', "a task without named scores"),
        (json.dumps(changed(NEWER, model_args="pretrained=a/b")), "no scores of small in the 1 JSON files"),
        (
            json.dumps(changed(NEWER, model_args="pretrained=EleutherAI/pythia-70m", model_revision="main")),
            r"its revision \(main\) does not contain the step",
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_results(tmp_path, PYTHIA)


def test_no_such_folder(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        read_results(tmp_path / "none", PYTHIA)


@pytest.mark.skipif(not (SHARED / "pythia_evals").is_dir(), reason="the shared data is not here")
def test_published_results_of_pythia():
    models = {name: Evaluated() for name in ("pythia-70m", "pythia-160m")}
    rows = read_results(SHARED / "pythia_evals", models)
    table = tables.from_rows(schemas.TABLES["metrics"], rows).to_pandas()
    steps = table.groupby("model").step.nunique()
    assert dict(steps) == {"pythia-70m": 27, "pythia-160m": 27}
    at = table.set_index(["model", "step", "metric"]).value
    source = json.loads((SHARED / "pythia_evals/pythia-160m/160m_step143000.json").read_text())
    assert at["pythia-160m", 143000, "piqa.acc"] == source["results"]["piqa"]["acc"]
    # 3510 + 3348 accuracies, 1188 + 1188 of stereotypes, 54 perplexities; a file a step, so no row is lost.
    assert len(table) == 3510 + 3348 + 2 * 1188 + 54
    lambada = at["pythia-70m"].xs("lambada_openai.ppl", level="metric").sort_index()
    assert lambada.iloc[-1] < lambada.iloc[0] / 1000
