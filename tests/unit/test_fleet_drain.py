"""Draining, entering, reconciling and watching over HTTP; the real router and servers are used in tests/ansible."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from fastfill.errors import FastfillError
from fastfill.fleet import audit, cli, drain, places, probing, proving, routers, web
from fastfill.fleet.places import Instance
from fastfill.fleet.routers import Step, Worker
from fastfill.fleet.soak import Limits


class Cluster:
    """One router and one server behind the same address, as sglang-router 0.3.2 and SGLang answer."""

    def __init__(self, http: HTTPServer, root: Path) -> None:
        self.url = http.url_for("").rstrip("/")
        self.workers: list[str] = []
        self.busy = [0]
        self.requests = 0
        self.refuses = False
        self.key = ""
        http.expect_request("/workers", method="GET").respond_with_handler(self.listed)
        http.expect_request("/workers", method="POST").respond_with_handler(self.added)
        http.expect_request("/workers/w1", method="DELETE").respond_with_handler(self.removed)
        http.expect_request("/metrics/").respond_with_handler(self.metrics)
        self.instance = Instance(root, "main")
        self.instance.folder.mkdir(parents=True)
        places.write(self.instance.folder / "instance.json", {"url": self.url, "routers": [self.url]})

    def listed(self, request: Request) -> Response:
        if self.refuses or (self.key and request.headers.get("Authorization") != f"Bearer {self.key}"):
            return Response("no", 401)
        found = [{"id": "w1", "url": url, "is_healthy": True} for url in self.workers]
        return Response(json.dumps({"workers": found}), content_type="application/json")

    def added(self, request: Request) -> Response:
        assert request.json is not None
        self.workers.append(request.json["url"])
        return Response("", 202)

    def removed(self, request: Request) -> Response:
        self.workers.clear()
        return Response("", 202)

    def metrics(self, request: Request) -> Response:
        busy = self.busy.pop(0) if len(self.busy) > 1 else self.busy[0]
        self.requests += 300
        return Response(f"sglang:num_running_reqs {busy}\nsglang:num_requests_total {self.requests}\n")


@pytest.fixture
def cluster(httpserver: HTTPServer, tmp_path: Path) -> Cluster:
    return Cluster(httpserver, tmp_path)


def test_what_a_router_is_told() -> None:
    listed = [Worker("1", "http://a:1/", True), Worker("2", "http://b:1", True)]
    assert routers.plan({"http://a:1": True}, listed) == []
    assert routers.plan({"http://a:1": False, "http://c:1": True}, listed) == [
        Step("remove", "http://a:1", "1"),
        Step("add", "http://c:1"),
    ]


def test_in_and_out_and_in_again_is_told_once(cluster: Cluster) -> None:
    assert drain.enter(cluster.instance, 5) | {"done": []} == {"ok": True, "why": "", "done": [], "changed": True}
    assert drain.enter(cluster.instance, 5)["done"] == [] and cluster.workers == [cluster.url]
    assert drain.leave(cluster.instance, 5)["ok"] and cluster.workers == []


def test_a_drain_waits_until_it_is_idle(cluster: Cluster) -> None:
    drain.enter(cluster.instance, 5)
    cluster.busy = [3, 1, 0]
    done = drain.drain(cluster.instance, 20)
    assert done["ok"] and done["left"] == 0 and done["waited_s"] >= 1.5
    assert not cluster.instance.in_service() and cluster.workers == []


def test_a_server_that_stays_busy_is_left_alone_and_put_back(cluster: Cluster) -> None:
    drain.enter(cluster.instance, 5)
    cluster.busy = [7]
    done = drain.drain(cluster.instance, 1)
    assert not done["ok"] and "7 requests are still there" in done["why"]
    assert cluster.instance.in_service() and cluster.workers == [cluster.url]


@pytest.mark.parametrize(("was", "back", "after"), [(False, None, False), (True, False, False), (False, True, True)])
def test_where_a_busy_server_goes_is_where_it_was_unless_it_is_said(
    cluster: Cluster, was: bool, back: bool | None, after: bool
) -> None:
    """What somebody has taken out, or what was never proven, must not get requests because it is busy."""
    if was:
        drain.enter(cluster.instance, 5)
    cluster.busy = [7]
    done = drain.drain(cluster.instance, 0.5, back=back)
    assert not done["ok"] and ("serves on" in done["why"]) == after
    assert cluster.instance.in_service() == after and cluster.workers == ([cluster.url] if after else [])


def test_a_dead_server_is_drained_and_a_router_that_is_away_is_no_hindrance(cluster: Cluster) -> None:
    gone = {"url": "http://127.0.0.1:1", "routers": ["http://127.0.0.1:1", cluster.url]}
    places.write(cluster.instance.folder / "instance.json", gone)
    assert drain.drain(cluster.instance, 5)["ok"]


def test_a_router_that_refuses_may_still_send_requests(cluster: Cluster) -> None:
    """A wrong key, or an error of its own, is no router that is away: the server is left alone."""
    drain.enter(cluster.instance, 5)
    cluster.refuses = True
    done = drain.drain(cluster.instance, 0.5)
    assert not done["ok"] and "answers HTTP 401" in done["why"]


def test_a_router_whose_certificate_is_not_trusted_is_not_gone(cluster: Cluster) -> None:
    """It may well send requests. Here it does not even speak TLS."""
    url = cluster.url.replace("http://", "https://")
    assert web.ask(f"{url}/workers").status == web.UNTRUSTED
    places.write(cluster.instance.folder / "instance.json", {"url": cluster.url, "routers": [url]})
    done = drain.drain(cluster.instance, 0.5)
    assert not done["ok"] and "is not trusted by this host" in done["why"]


def test_a_server_that_is_slow_to_answer_is_not_gone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    drain.enter(cluster.instance, 5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert web.ask(url, timeout=0.1).status == web.SLOW
        ask = web.ask
        # The router is not silent, and may be slow on a busy machine.
        monkeypatch.setattr(web, "ask", lambda place, **more: ask(place, timeout=0.1 if url in place else 9, **more))
        places.write(cluster.instance.folder / "instance.json", {"url": url, "routers": [cluster.url]})
        done = drain.drain(cluster.instance, 0.5)
    assert not done["ok"] and "does not say how busy it is" in done["why"]
    assert web.ask("http://127.0.0.1:1").status == 0


def test_the_timer_brings_back_what_a_restarted_router_forgot(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.instance.serve(True)
    assert cli.main(["--root", str(tmp_path), "reconcile"]) == 0
    assert cluster.workers == [], "what was never proven gets no requests"
    cluster.instance.release("a").mkdir(parents=True)
    places.write(cluster.instance.release("a") / "release.json", {"schema": 1})
    cluster.instance.point("proven", "a")
    for _ in range(2):
        assert cli.main(["--root", str(tmp_path), "reconcile"]) == 0
    assert cluster.workers == [cluster.url]
    assert '"changed": false' in capsys.readouterr().out.splitlines()[-1]


def proven(instance: Instance) -> Instance:
    instance.release("a").mkdir(parents=True)
    places.write(instance.release("a") / "release.json", {"schema": 1})
    instance.point("proven", "a")
    instance.serve(True)
    return instance


def test_the_timer_takes_back_what_it_added_while_a_drain_began(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked, the drain took the server out and found nothing to remove, and then it added the server."""
    one, real, told = proven(cluster.instance), routers.reconcile, []

    def late(router: str, mine: dict[str, bool], *keys: str) -> list[str]:
        if not told:
            one.serve(False)
        told.append(dict(mine))
        return real(router, mine, *keys)

    monkeypatch.setattr(routers, "reconcile", late)
    drain.in_step(one)
    assert told == [{cluster.url: True}, {cluster.url: False}] and cluster.workers == []


def test_one_server_that_cannot_be_looked_at_leaves_the_others_in_step(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proven(cluster.instance)
    torn = Instance(tmp_path, "abroken")
    torn.folder.mkdir(parents=True)
    (torn.folder / "instance.json").write_text("{")
    assert cli.main(["--root", str(tmp_path), "reconcile"]) == 4
    assert cluster.workers == [cluster.url] and "no instance abroken" in capsys.readouterr().err


def test_who_serves_is_who_answers_and_is_in_the_routers(cluster: Cluster) -> None:
    urls = [cluster.url, "http://127.0.0.1:1"]
    assert probing.serving(urls, []) == [cluster.url]
    assert probing.serving(urls, [cluster.url]) == []
    cluster.workers = [cluster.url]
    assert probing.serving(urls, [cluster.url]) == [cluster.url]
    cluster.refuses = True
    assert probing.serving(urls, [cluster.url]) == [cluster.url]


def test_a_canary_is_watched_until_it_is_judged(cluster: Cluster) -> None:
    told = probing.watch([cluster.url], [], Limits(requests=500), soak_s=0, timeout_s=9, every=0.01)
    assert told["state"] == "good" and told["canary"]["requests"] >= 500
    gone = probing.watch(["http://127.0.0.1:1"], [], Limits(), soak_s=0, timeout_s=9, every=0.01)
    assert (gone["state"], gone["why"]) == ("bad", ["it does not answer any more"])
    lonely = probing.watch([cluster.url], [], Limits(requests=10**6), soak_s=0, timeout_s=0.02, every=0.01)
    assert lonely["state"] == "bad" and "of 1000000 requests" in lonely["why"][0]


def test_the_routers_are_asked_with_their_key(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stdin: a command line would show it. Without it each router refuses, and all that answers would count."""
    cluster.key = "r-key"
    asked = {"urls": [cluster.url], "routers": [cluster.url]}
    cluster.workers = []
    for key, serve in (("r-key", []), ("", [cluster.url])):
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked | {"router_key": key})))
        assert cli.main(["--root", str(tmp_path), "serving"]) == 0
        assert json.loads(capsys.readouterr().out)["serving"] == serve


@pytest.mark.parametrize("given", ["", "no JSON", "[]"])
def test_what_is_no_object_on_stdin_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    assert cli.main(["--root", str(tmp_path), "serving"]) == 2
    assert "no JSON object on stdin" in capsys.readouterr().err


def test_what_the_system_refuses_is_an_error_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["--root", str(tmp_path / "file"), "fence", "--rollout", "r", "--epoch", "1"]) == 4
    said = capsys.readouterr().err
    assert "the system refused: " in said and str(tmp_path / "file") in said and "next:" in said


def test_two_runs_at_the_same_moment_are_told_apart(cluster: Cluster, tmp_path: Path) -> None:
    fence = ["--root", str(tmp_path), "fence", "--epoch", "3", "--rollout"]
    codes: list[int] = []
    with places.held(tmp_path / "fence.lock"):
        both = [threading.Thread(target=lambda name=name: codes.append(cli.main([*fence, name]))) for name in "ab"]
        for one in both:
            one.start()
        time.sleep(0.2)
        assert codes == [], "neither reads while somebody writes"
    for one in both:
        one.join(10)
    assert sorted(codes) == [0, 1]


def test_a_run_that_lost_the_lock_is_refused_by_the_host(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--root", str(tmp_path)]
    assert cli.main([*root, "fence", "--rollout", "new", "--epoch", "2"]) == 0
    assert cli.main([*root, "leave", "main", "--rollout", "old", "--epoch", "1"]) == 1
    assert "this host obeys rollout new" in capsys.readouterr().err


def test_half_a_line_of_the_audit_log_takes_nothing_with_it(tmp_path: Path) -> None:
    audit.add(tmp_path, {"what": "one"})
    with (tmp_path / "audit.jsonl").open("a") as file:
        file.write('{"what": "ha')
    audit.add(tmp_path, {"what": "two"})
    assert [one["what"] for one in audit.last(tmp_path, 9)] == ["one", "two"]


def test_a_server_that_cannot_be_asked_leaves_the_others_proven(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def again(engine: object, one: Instance, seconds: float, **_: bool) -> dict[str, object]:
        if one.name == "main":
            raise FastfillError("the engine does not answer")
        return {"ok": True, "verdict": "FIRED", "changed": True}

    other = Instance(tmp_path, "other")
    other.folder.mkdir(parents=True)
    places.write(other.folder / "instance.json", {"url": cluster.url, "routers": []})
    monkeypatch.setattr(proving, "again", again)
    assert cli.main(["--root", str(tmp_path), "prove-all", "--textfile", str(tmp_path / "proofs.prom")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["main"]["ok"], said["other"]["ok"]) == (False, True) and (tmp_path / "proofs.prom").exists()


def test_the_lock_and_the_audit_log_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path)]
    take = [*root, "lease", "acquire", "--rollout", "r1", "--owner", "ann@desk"]
    assert cli.main(take) == 0
    assert cli.main([*take[:-3], "r2", "--owner", "bob@desk"]) == 4
    assert "ann@desk is changing this cluster" in capsys.readouterr().err
    assert cli.main([*root, "lease", "raise", "--epoch", "7"]) == 0
    assert cli.main([*root, "audit", "--entry", '{"what": "began"}']) == 0
    assert cli.main([*root, "audit"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["entries"][0]["what"] == "began"
