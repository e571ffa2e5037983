"""Alert rules by promtool's own tests, the hourly proof's metrics, and what the rules and the dashboard refer to."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from fastfill.fleet import proving

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "ansible/roles/monitoring"
DASHBOARD = ROLE / "files/fastfill-dashboard.json"


def rules() -> str:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    text = (ROLE / "templates/fastfill.rules.yml.j2").read_text()
    return jinja2.Environment(keep_trailing_newline=True).from_string(text).render(defaults)


@pytest.fixture(scope="module")
def promtool() -> str:
    done = subprocess.run([str(ROOT / "tests/ansible/prometheus.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{done.stdout.strip()}/promtool"


def test_every_alert_fires_when_it_should(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "fastfill.rules.yml").write_text(rules())
    (tmp_path / "rules_test.yml").write_text((ROOT / "tests/ansible/rules_test.yml").read_text())
    for words in (["check", "rules", "fastfill.rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run([promtool, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"] if "alert" in rule]


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
    known = (ROOT / "patches/sglang_fastfill/meters.py").read_text() + rules() + proving.exposition({})
    known += "sglang:num_running_reqs sglang:num_queue_reqs sglang:prompt_tokens_total sglang:generation_tokens_total"
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            for name in re.findall(r"\b(?:fastfill|sglang)[:_][a-z0-9_:]+", target["expr"]):
                assert name.removesuffix("_total").removesuffix("_bucket") in known, name
