"""`toposcale benchmark`: a law from outside, common points, the cache, and what is refused."""

import json
import re
import sys
from datetime import date

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from toposcale.__main__ import main
from toposcale.datasets import benchmark, load_published_runs
from toposcale.datasets.benchmark import Setting, by_share, comparison, digest_of, judge_all
from toposcale.datasets.contestants import CONTESTANTS
from toposcale.forecasting import Known, NoForecast, PowerLaw, Prediction

PAGE = ROOT / "docs/benchmark.md"


class Fixed:
    """A law that forecasts one loss, and counts its fits."""

    fits = 0

    def __init__(self, value=3.0, earliest=0.0):
        self.value, self.earliest = value, earliest

    def fit(self, run, others=()):
        type(self).fits += 1
        if run.progress.step < self.earliest * run.final_step - 100:
            raise NoForecast("too early")
        return self

    def predict(self, targets):
        return [Prediction.of(self.value, 0.1) for _ in targets]


@pytest.fixture(scope="module")
def setting():
    return Setting(load_published_runs("multi-power-law"), (0.2, 0.5), Known.ALONE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of the user's with the law of the page, and a cache of its own."""
    code = re.search(r"```python\n(.*?class MyLaw.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line]) <= 20
    (tmp_path / "my_module.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    sys.modules.pop("my_module", None)


def test_benchmark_judges_the_law_of_the_page_as_printed(folder, capsys):
    command = re.search(r"^toposcale (benchmark --law .*)$", PAGE.read_text(), re.MULTILINE)[1].split()
    files = ["--csv", "rows.csv", "--json", "table.json", "--plot", "picture.svg"]
    assert main([*command, "--sources", "multi-power-law", "--processes", "2", *files]) == 0
    printed = capsys.readouterr().out
    common, own = printed.split("at the points that all forecast")[1].split("at the points that each forecasts")
    for part in (common, own):
        assert re.search(r"my_module:MyLaw +12 +0% 0\.\d{3} [+-]0\.\d{3} +\d+%", part)
        assert re.search(r"last_value +12", part)
    assert "not judged yet: joint, multi_power_law" in own
    rows = pd.read_csv("rows.csv")
    assert {"my_module:MyLaw", "power_law"} <= set(rows["law"])
    table = json.loads((folder / "table.json").read_text())["rows"]
    assert {"my_module:MyLaw", "power_law"} <= {row["law"] for row in table if row["points"] == "common"}
    assert "<svg" in (folder / "picture.svg").read_text()
    assert "unseen" not in printed


def test_benchmark_dates_what_is_judged_on_unseen_sources(folder, capsys):
    assert main(["benchmark", "--law", "my_module:MyLaw", "--tags", "unseen", "--at", "0.5", "--processes", "1"]) == 0
    assert f"unseen sources, on {date.today()}: modded-track3" in capsys.readouterr().out


def test_benchmark_refuses_what_is_no_law_or_share(folder, capsys):
    for options, message in (
        (["--law", "my_module"], "--law: my_module, but a law is named as MODULE:CLASS"),
        (["--law", "no_such_module:MyLaw"], "--law: no_such_module:MyLaw: No module named 'no_such_module'"),
        (["--law", "my_module:Prediction"], "--law: my_module:Prediction has no fit; a law has fit(run, others)"),
        (["--at", "20"], "--at: 20, but it is a share of the steps between 0 and 1, such as 0.3"),
        (["--processes", "0"], "--processes: 0, but it is a whole number from 1 on"),
        (["--sources", "no-source"], "no-source: no such source; the sources are"),
        (["--plot", "x.txt"], "x.txt: the suffix of a picture must be .svg, .png, .pdf"),
    ):
        assert main(["benchmark", *options]) == 1
        assert message in capsys.readouterr().err


def test_judge_all_keeps_what_it_has_judged(setting, tmp_path):
    Fixed.fits = 0
    first = judge_all({"fixed": Fixed}, setting, cache=tmp_path)
    fits = Fixed.fits
    assert fits > 0
    again = judge_all({"fixed": Fixed}, setting, cache=tmp_path)
    assert Fixed.fits == fits
    for name in ("forecasts", "decisions"):
        pd.testing.assert_frame_equal(getattr(first["fixed"], name), getattr(again["fixed"], name))
    assert judge_all({"other": Fixed}, setting, cache=tmp_path, only_cached=["other"]) == {}


def test_digest_of_a_law_changes_with_data_share_and_name(setting):
    fewer = setting._replace(runs=setting.runs[:3])
    settings = [setting, fewer, setting._replace(at=(0.3,)), setting._replace(known=Known.ONE_SMALLER)]
    digests = {digest_of("fixed", Fixed(), each) for each in settings} | {digest_of("other", Fixed(), setting)}
    assert len(digests) == 5
    assert digest_of("fixed", Fixed(), setting) in digests


def test_comparison_is_on_the_points_that_all_forecast(setting):
    laws = {"always": Fixed, "late": lambda: Fixed(3.1, earliest=0.5), "never": lambda: Fixed(3.0, earliest=2.0)}
    judged = judge_all(laws, setting)
    table = comparison(judged).set_index(["points", "law"])
    assert table.loc["own", "n"].to_dict() == {"always": 8, "late": 8, "never": 8}
    assert table.loc["own", "refused"].to_dict() == {"always": 0.0, "late": 0.5, "never": 1.0}
    assert table.loc["common", "n"].to_dict() == {
        "always": 4,
        "late": 4,
    }  # a law that never answers takes no point away
    ends = judged["always"].forecasts.query("share == 0.5")["actual"]
    assert table.loc[("common", "late"), "mean_error"] == pytest.approx(np.abs(3.1 - ends).mean())
    assert by_share(judged).index.to_list() == [0.5]


def test_judge_all_gives_the_same_rows_in_several_processes(setting):
    one, two = (judge_all({"power_law": PowerLaw}, setting, processes=n)["power_law"] for n in (1, 2))
    for name in ("forecasts", "decisions"):
        left, right = (getattr(judged, name).drop(columns="seconds", errors="ignore") for judged in (one, two))
        pd.testing.assert_frame_equal(left, right)


def test_constants_digest_changes_with_one_constant():
    class Constants:
        A = 1.0
        B = 2.0

    digest = benchmark.constants_digest(Constants)
    Constants.B = 2.5
    assert benchmark.constants_digest(Constants) != digest


def test_benchmark_page_shows_every_contestant_in_order():
    assert re.findall(r"^ *(\w+) +1,266 ", PAGE.read_text(), re.MULTILINE) == list(CONTESTANTS)
