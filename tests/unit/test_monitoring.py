"""Alert rules by promtool's own tests, the hourly proof's metrics, and what the rules and the dashboard refer to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastfill.fleet import proving

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "ansible/roles/monitoring"
RULES = "fastfill.rules.yml"
DASHBOARD = ROLE / "files/fastfill-dashboard.json"


sys.path.insert(0, str(ROOT / "ansible"))
from role_tables import monitoring


@pytest.fixture(scope="module")
def promtool() -> str:
    done = subprocess.run([str(ROOT / "tests/ansible/prometheus.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{done.stdout.strip()}/promtool"


def test_every_alert_fires_when_it_should(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "fastfill.rules.yml").write_text(monitoring(RULES))
    (tmp_path / "rules_test.yml").write_text((ROOT / "tests/ansible/rules_test.yml").read_text())
    for words in (["check", "rules", "fastfill.rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run([promtool, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_of_the_compose_file_takes_its_configuration(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "config", str(ROOT / "docker/monitoring/prometheus.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    mounted = yaml.safe_load((ROOT / "docker/compose.monitoring.yaml").read_text())["services"]
    for service in mounted.values():
        assert service["profiles"] == ["monitoring"]
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists(), source
    dashboard = mounted["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert any(f":{dashboard}:" in volume for volume in mounted["grafana"]["volumes"])


def test_both_scrape_configurations_bring_the_names_back() -> None:
    hosts = {
        "groups": {"servers": ["a"]},
        "hostvars": {"a": {"fleet_address": "a", "fleet_instances": [{"name": "m", "port": 1}]}},
    }
    of_the_role = yaml.safe_load(monitoring("fastfill.scrape.yml", **hosts))["scrape_configs"]
    of_compose = yaml.safe_load((ROOT / "docker/monitoring/prometheus.yml").read_text())["scrape_configs"]
    assert of_the_role[0]["metric_relabel_configs"] == of_compose[0]["metric_relabel_configs"]
    # fastfill_proof_... is what these are called.
    assert "metric_relabel_configs" not in of_the_role[1]
    assert [one["job_name"] for one in of_the_role] == ["fastfill", "fastfill-proof"]


def test_rules_without_the_hourly_proof_say_nothing_of_it() -> None:
    text = monitoring(RULES, monitoring_proofs=False)
    assert "fastfill_proof" not in text and "FastfillTtftBudget" in text and "FastPathStopped" in text


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(monitoring(RULES))["groups"] for rule in group["rules"] if "alert" in rule]


def test_every_alert_is_tested_and_leads_to_a_section_of_the_readme() -> None:
    tested = (ROOT / "tests/ansible/rules_test.yml").read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("#")
    }
    for alert in alerts():
        assert f"alertname: {alert['alert']}" in tested
        assert alert["labels"]["severity"] in ("warning", "critical")
        anchor = alert["annotations"]["runbook_url"].partition("#")[2]
        assert anchor in headings, anchor


def test_the_last_proof_counts_and_a_failed_one_does_not_renew_the_time() -> None:
    rollout = {"release": "a-1", "verdict": "FIRED", "when": "2026-11-30T12:00:00Z"}
    failed = {**rollout, "last": {"verdict": "NOT_FIRED", "when": "2026-11-30T14:00:00Z"}}
    text = proving.exposition({"h/main": failed, "h/two": rollout, "h/none": {}})
    assert 'fastfill_proof_fired{server="h/main",release="a-1"} 0' in text
    assert 'fastfill_proof_timestamp_seconds{server="h/main",release="a-1"} 1796040000' in text
    assert 'fastfill_proof_fired{server="h/two",release="a-1"} 1' in text
    assert 'fastfill_proof_timestamp_seconds{server="h/none"' not in text


def test_the_dashboard_asks_only_for_metrics_that_exist() -> None:
    known = (ROOT / "patches/sglang_fastfill/meters.py").read_text() + monitoring(RULES) + proving.exposition({})
    known += "sglang:num_running_reqs sglang:num_queue_reqs sglang:prompt_tokens_total sglang:generation_tokens_total"
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            for name in re.findall(r"\b(?:fastfill|sglang)[:_][a-z0-9_:]+", target["expr"]):
                assert name.removesuffix("_total").removesuffix("_bucket") in known, name
