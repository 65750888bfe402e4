"""What rules ask a cluster for: of each, memory and time that grow with the attempt."""

import re

import yaml

from paths import ROOT


def test_every_job_asks_for_more_at_the_next_attempt():
    found = 0
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for rule in re.split(r"^ *rule\b", path.read_text(), flags=re.MULTILINE)[1:]:
            if "    script:" in rule:
                found += 1
                where = f"{path.name}, rule{rule.splitlines()[0]}"
                assert "mem_mb=on_attempt(" in rule, f"{where} mem_mb=on_attempt(...)"
                assert "runtime=on_attempt(" in rule, f"{where} runtime=on_attempt(...)"
                assert "retries:" not in rule, f"{where} retries belong in a profile"
    assert found > 20


def test_a_default_that_a_rule_forgets_is_small_and_the_queue_is_the_users():
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    assert profile["slurm-status-command"] == "squeue"
    assert set(profile["default-resources"]) == {"mem_mb", "runtime"}
    assert profile["retries"] >= 1
