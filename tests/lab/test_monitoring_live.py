"""Every query of the dashboard and of the rules, asked of a real Prometheus that scrapes a real lab server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from client import Client, prompt

from fastfill.fleet import proving
from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec
from ports import free_port

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "ansible"))
from role_tables import monitoring

DASHBOARD = json.loads((ROOT / "ansible/roles/monitoring/files/fastfill-dashboard.json").read_text())
SELECTOR = re.compile(r"\b((?:fastfill|sglang)[:_][a-z0-9_:]+|up)(\{[^}]*\})?")
SEEN = '{__name__=~"up|sglang:num_(aborted_)?requests_total|fastfill:.*"}'
Start = Callable[[LabSpec], LabServer]
RULES = [rule for group in yaml.safe_load(monitoring("fastfill.rules.yml"))["groups"] for rule in group["rules"]]


def hurried(text: str) -> str:
    """Seconds where it says minutes."""
    text = re.sub(r"\[\d+[mh]\]", "[20s]", text)
    return re.sub(
        r"(for|scrape_interval): \d+[smh]", lambda found: f"{found[1]}: {'0s' if found[1] == 'for' else '2s'}", text
    )


class Proofs(BaseHTTPRequestHandler):
    """What node_exporter serves of the hourly proof's file."""

    def do_GET(self) -> None:
        """The file."""
        proof = {"release": "a-1", "verdict": "FIRED", "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(proving.exposition({"lab/main": proof}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=10)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The result of a query."""
        answer = self.http.get("/api/v1/query", params={"query": query}).json()
        assert answer["status"] == "success", (query, answer)
        return list(answer["data"]["result"])

    def rules(self) -> list[dict[str, Any]]:
        """The rules as they were last evaluated."""
        groups = self.http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        alerts = self.http.get("/api/v1/alerts").json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def until(self, ready: Callable[[], bool], what: str, seconds: float = 120) -> None:
        """Wait for it."""
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"{what}; {self.ask(SEEN)}"
            time.sleep(0.5)


@pytest.fixture(scope="module")
def binary() -> str:
    done = subprocess.run([str(ROOT / "tests/ansible/prometheus.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{done.stdout.strip()}/prometheus"


@pytest.fixture
def prometheus(lab_server: Start, binary: str, tmp_path: Path) -> Iterator[tuple[Prometheus, Client]]:
    """One that scrapes the lab's server and the proof's file as the role's configuration says, and has its rules."""
    server = lab_server(LabSpec())
    proofs = ThreadingHTTPServer(("127.0.0.1", free_port()), Proofs)
    threading.Thread(target=proofs.serve_forever, daemon=True).start()
    host = {"fleet_address": "127.0.0.1", "fleet_instances": [{"name": "main", "port": server.spec.port}]}
    scraped = monitoring(
        "fastfill.scrape.yml",
        groups={"servers": ["lab"]},
        hostvars={"lab": host},
        monitoring_node_port=proofs.server_port,
    )
    (tmp_path / "fastfill.rules.yml").write_text(
        hurried(monitoring("fastfill.rules.yml", monitoring_long_prefill_work=100))
    )
    config = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": ["fastfill.rules.yml"],
        **yaml.safe_load(hurried(scraped)),
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    argv = [binary, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    found = Prometheus(f"http://127.0.0.1:{port}")

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return found.http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        found.until(ready, "it is not ready")
        yield found, Client(server)
    finally:
        process.terminate()
        process.wait()
        proofs.shutdown()


class Traffic(threading.Thread):
    """Fresh prompts, repeated ones, and some that are given up, until it is stopped."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client, self.done = client, threading.Event()

    def run(self) -> None:
        """Send them."""
        again = prompt(200)
        while not self.done.is_set():
            self.client.generate(prompt(300))
            self.client.generate(again)
            body = {
                "input_ids": prompt(50),
                "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True},
                "stream": True,
            }
            with self.client.http.stream("POST", "/generate", json=body) as answer:
                next(answer.iter_lines())

    def __enter__(self) -> Traffic:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.join()


def questions() -> dict[str, str]:
    """The dashboard's queries by panel."""
    found = {}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "20s")
            assert "$" not in text, text
            found[f"{panel['title']} {target['refId']}"] = text
    return found


def finite(samples: list[dict[str, Any]]) -> bool:
    """Whether there is a result, and every value of it is a number."""
    return bool(samples) and all(float(one["value"][1]) == float(one["value"][1]) for one in samples)


@pytest.mark.server("plain")
def test_every_query_has_an_answer(prometheus: tuple[Prometheus, Client]) -> None:
    asked, client = prometheus
    with Traffic(client):
        asked.until(lambda: finite(asked.ask("fastfill:aborted:share_1h")), "no request was counted as aborted")
        asked.until(lambda: finite(asked.ask("fastfill:skipped:attention_work_share_5m")), "nothing left the path")
        # Two looks at a counter for every rate.
        time.sleep(8)
        empty = [name for name, query in questions().items() if not finite(asked.ask(query))]
        empty += [rule["record"] for rule in RULES if "record" in rule and not finite(asked.ask(rule["record"]))]
        for rule in RULES:
            for name, matchers in SELECTOR.findall(rule["expr"]):
                # A good server gives no error to count, but it counts its answers by their status.
                matchers = re.sub(r'status_code=~"5.."', 'status_code="200"', matchers)
                if not asked.ask(name + matchers):
                    empty.append(f"{rule.get('alert') or rule['record']}: {name}{matchers}")
        assert empty == []
        assert {one["labels"].get("server") for one in asked.rules() if "alert" in one} <= {None}
        assert {(one["health"], one.get("lastError")) for one in asked.rules()} == {("ok", None)}
        assert len(asked.rules()) == len(RULES)
        (coverage,) = asked.ask("fastfill:coverage:attention_work_5m")
        assert 0.5 < float(coverage["value"][1]) < 1
        # Nothing is wrong with this server but that its users give up.
        assert asked.firing() <= {"FastfillErrorBudget"}
    variable = DASHBOARD["templating"]["list"][1]["query"]
    metric, label = re.fullmatch(r"label_values\((\S+), (\w+)\)", variable).groups()
    answer = asked.http.get(f"/api/v1/label/{label}/values", params={"match[]": metric}).json()
    assert answer["data"] == [f"127.0.0.1:{client.http.base_url.port}"]


@pytest.mark.server("plain")
def test_the_alerts_of_the_path_fire_when_it_is_off_and_are_quiet_again(prometheus: tuple[Prometheus, Client]) -> None:
    asked, client = prometheus

    def turn(state: str) -> None:
        words = ["fastfill", "path", state, "--url", str(client.http.base_url), "--why", "a test"]
        subprocess.run([str(ROOT / ".venv/bin" / words[0]), *words[1:]], check=True, timeout=60, capture_output=True)

    wanted = {"FastPathStopped", "FastPathCoverageLow"}
    with Traffic(client):
        turn("off")
        try:
            asked.until(lambda: wanted <= asked.firing(), "the path is off and nobody says so")
            (reason,) = asked.ask("topk(1, fastfill:skipped:attention_work_share_5m)")
            assert reason["metric"]["reason"] == "operator_off"
        finally:
            turn("on")
        asked.until(lambda: not wanted & asked.firing(), "it fires on")
