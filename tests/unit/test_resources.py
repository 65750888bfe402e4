"""What rules ask a cluster for: memory and time that grow with the attempt, from the rule or from the profile."""

import re

import pytest
import yaml

from paths import ROOT


def test_what_a_rule_asks_for_grows_with_the_attempt():
    found = 0
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for amount in re.findall(r"(?:mem_mb|runtime)=(.*),", path.read_text()):
            found += 1
            assert amount.startswith(("on_attempt(", "INPUTS.by_size(")), f"{path.name}: {amount}"
        assert "retries:" not in path.read_text(), f"{path.name}: retries belong in a profile"
    assert found > 10


@pytest.mark.parametrize("profile", ["default", "slurm"])
def test_what_a_rule_does_not_ask_for_stands_in_the_profile(profile):
    asked = yaml.safe_load((ROOT / "profiles" / profile / "config.yaml").read_text())["default-resources"]
    growing = {name for name, amount in asked.items() if str(amount).endswith(" * attempt")}
    assert growing == {"mem_mb", "runtime"}
    assert set(asked) - growing <= {"disk_mb"}  # for planning; no job is refused for it


def test_the_queue_is_the_users_and_failed_jobs_are_tried_again():
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    assert profile["slurm-status-command"] == "squeue"
    assert profile["retries"] >= 1
