"""docs/fresh-seeds.md: its program tests only the chosen feature on the tables of a run with fresh seeds."""

import re

from paths import ROOT
from planted_features import four_models, one
from toposcale.analysis.verdicts import POOLED, verdict_tables

PROGRAM = re.search(r"```python\n(.*?)```", (ROOT / "docs/fresh-seeds.md").read_text(), re.DOTALL).group(1)


def test_the_program_of_the_page_tests_a_feature_alone_as_a_run_tests_it_among_all(tmp_path, monkeypatch, capsys):
    run = four_models()
    folder = tmp_path / "results/mine-fresh/tables"
    folder.mkdir(parents=True)
    for name, table in zip(("features", "metrics", "models"), run, strict=True):
        table.to_parquet(folder / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    exec("\n".join(line.removeprefix("   ") for line in PROGRAM.splitlines()), {})
    verdicts = verdict_tables(*run)["verdicts"]
    row = one(verdicts, model=POOLED, question="beyond_the_norm", feature="neural_persistence")
    assert row.p <= 0.05
    assert capsys.readouterr().out == f"estimate {row.estimate:.2f}, p = {row.p:.2g}\n"
