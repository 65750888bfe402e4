"""`make quick` runs the tests of what changed, and what takes long only where it fits into a minute."""

import quick

THERE = ["paths", "pages", "verdicts", "figures"]


def test_a_file_is_tested_by_the_tests_of_its_name_and_a_test_by_itself():
    files = ["src/toposcale/analysis/verdicts.py", "tests/unit/test_paths.py", "docs/pages.md", "src/x/new.py"]
    assert quick.tests_of(files, THERE) == ["paths", "verdicts"]
    assert quick.tests_of(["README.md"], THERE) == []


def test_what_does_not_fit_into_the_minute_is_left_out_the_slowest_first():
    assert quick.within_budget(THERE) == (["paths", "pages", "verdicts"], ["figures"])
    assert quick.within_budget(["figures"]) == (["figures"], [])


def test_every_slow_name_is_a_test():
    there = {path.stem.removeprefix("test_") for path in (quick.ROOT / "tests/unit").glob("test_*.py")}
    assert set(quick.SLOW) <= there


def test_changes_are_those_since_the_branch_left_main(monkeypatch):
    answers = {"merge-base": ["abc"], "diff": ["src/a.py"], "ls-files": ["src/b.py"]}
    monkeypatch.setattr(quick, "git", lambda command, *rest: answers[command])
    assert quick.changed_files() == ["src/a.py", "src/b.py"]
    monkeypatch.setattr(quick, "git", lambda *_: [])
    assert quick.changed_files() == []
