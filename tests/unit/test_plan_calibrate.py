"""``plan calibrate`` against a made-up server with a clock of its own: the constants are those it was made with."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fastfill.planning import calibrate
from fastfill.planning.calibrate import Calibration
from fastfill.proof.wire import Pass
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX

PASS, TOKEN, FAST, SLOW, ROW, WAY = 0.06, 1e-3, 1e-7, 3e-7, 0.005, 0.08


class Server:
    """Prefills what it is sent in passes of at most ``budget`` tokens, splitting prompts; each call takes its time."""

    url = "http://127.0.0.1:1"

    def __init__(self, device: str, *, ring: bool = True, budget: int = 1024, **info: int) -> None:
        self.info: dict[str, Any] = {
            "device": device,
            "max_total_num_tokens": 32768,
            "max_running_requests": 16,
            "max_prefill_tokens": 16384,
            **info,
        }
        self.budget = budget
        self.now = 100.0
        self.ring: list[Pass] | None = [] if ring else None
        self.sent: list[dict[str, Any]] = []
        self.mine = 0
        self._lock = threading.Lock()

    def facts(self) -> Any:
        return SimpleNamespace(
            max_req_input_len=4000, chunked_prefill_size=self.budget, model_path="model", version="0.5.16"
        )

    def ordinary_ids(self) -> list[int]:
        return list(range(100))

    def hurry(self, seconds: float) -> None:
        """The main thread's next prompt arrives while another thread's is prefilled."""
        while len(self.sent) == self.mine:
            threading.Event().wait(0.001)
        with self._lock:
            self.now -= WAY

    def clock(self) -> float:
        return self.now

    def generate(self, body: dict[str, Any], *, timeout_s: float) -> Any:
        with self._lock:
            self.sent.append(body)
            if threading.current_thread() is threading.main_thread():
                self.mine = len(self.sent)
            new = body["sampling_params"]["max_new_tokens"]
            if new > 1:
                self.now += ROW * new
                return SimpleNamespace(refusal="")
            many = isinstance(body["rid"], list)
            rids = body["rid"] if many else [body["rid"]]
            prompts = body["input_ids"] if many else [body["input_ids"]]
            left = [[rid, 0, len(ids)] for rid, ids in zip(rids, prompts, strict=True)]
            while left:
                room, members = self.budget, []
                while left and room:
                    rid, done, whole = left[0]
                    take = min(room, whole - done)
                    members.append((rid, done, take))
                    room -= take
                    left[0][1] += take
                    if left[0][1] == whole:
                        del left[0]
                self._pass(members)
            self.now += WAY
        return SimpleNamespace(refusal="")

    def _pass(self, members: list[tuple[str, int, int]]) -> None:
        fast = not any(rid.startswith(FALLBACK_RID_PREFIX) or prefix for rid, prefix, _ in members)
        pairs = sum(extend * (prefix + extend / 2) for _, prefix, extend in members)
        self.now += PASS + TOKEN * sum(extend for *_, extend in members) + (FAST if fast else SLOW) * pairs
        if self.ring is not None:
            kernel = "asm" if fast else "ck"
            document = {
                "pass": len(self.ring) + 1, "time": self.now, "rids": [m[0] for m in members],
                "prefix": [m[1] for m in members], "extend": [m[2] for m in members],
                "calls": [{"fn": "f", "kernel": kernel, "head_dim": 256, "count": 1}],
            }  # fmt: skip
            self.ring.append(Pass.model_validate(document))

    def passes(self, rid: str) -> Any:
        if self.ring is None:
            return None
        return SimpleNamespace(ranks=(SimpleNamespace(passes=[one for one in self.ring if rid in one.rids]),))


def run(monkeypatch: pytest.MonkeyPatch, server: Server) -> dict[str, Any]:
    monkeypatch.setattr(calibrate.time, "perf_counter", server.clock)
    monkeypatch.setattr(calibrate.time, "sleep", server.hurry)
    return Calibration(server, lambda what: None).run()  # type: ignore[arg-type]


def test_a_server_on_a_cpu_tells_its_passes_by_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("cpu")
    found = run(monkeypatch, server)
    seconds = found["seconds"]
    assert seconds["pass"] == pytest.approx(PASS, rel=0.05)
    assert seconds["token"] == pytest.approx(TOKEN, rel=0.05)
    assert seconds["pair_fast"] == pytest.approx(FAST, rel=0.1)
    assert seconds["pair_slow"] == pytest.approx(SLOW, rel=0.1)
    # The scheduler waits for a pass: a token is told one decode step late.
    assert seconds["answer"] == pytest.approx(WAY - seconds["decode"] - seconds["row"], rel=0.1)
    # This one takes prompts one after the other, whoever sends them.
    assert seconds["ingest"] == pytest.approx(PASS + 16 * TOKEN + WAY, rel=0.05)
    assert found["blocking"] and found["notes"] == [] and found["fit"]["worst_error"] < 0.02
    inside = [one for one in found["prefills"] if not one["client"]]
    assert len(inside) > 3 and {one["tokens"] for one in inside} == {64, 128, 256, 1024}


def test_elsewhere_the_rest_of_the_first_tokens_time_is_the_way_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, Server("cuda"))
    seconds = found["seconds"]
    assert not found["blocking"] and all(one["client"] for one in found["prefills"])
    assert seconds["pass"] == pytest.approx(seconds["decode"] + seconds["row"])
    assert seconds["pass"] + seconds["answer"] == pytest.approx(PASS + WAY, rel=0.05)
    assert seconds["token"] == pytest.approx(TOKEN, rel=0.05)


def test_without_a_ring_of_passes_the_path_is_taken_to_be_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, Server("cuda", ring=False))
    assert any("does not tell which path" in note for note in found["notes"])
    assert any("could not be told: taken as 0" in note for note in found["notes"]) and found["seconds"]["ingest"] == 0


def test_no_more_sequences_than_the_server_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("cuda", max_running_requests=4)
    found = run(monkeypatch, server)
    assert {one["rows"] for one in found["decodes"]} == {1, 4}
    assert all(isinstance(body["rid"], list) == (len(body["input_ids"]) in (4, 8)) for body in server.sent)
