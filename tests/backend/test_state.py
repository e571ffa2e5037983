"""The state folder and the pages over it: what a full disk, a hostile order or a second server may not do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from sglang_fastfill import ring, routes, state

RANK = {"pp": 0, "dp": 0, "tp": 0}


@pytest.fixture
def client(state_dir: Path) -> TestClient:
    state.prepare()
    app = FastAPI()
    routes.add(app)
    return TestClient(app, raise_server_exceptions=False)


def record(number: int, *rids: str) -> dict[str, Any]:
    sizes = [1] * len(rids)
    return {"pass": number, "pid": 7, "mode": "EXTEND", "rids": list(rids), "prefix": sizes, "extend": sizes}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"path": "off"}', 200),
        (b'{"path": "off", "who": "\\ud800", "why": "two\\nlines"}', 200),
        (b'{"path": "off", "who": {"a": 1}, "why": null}', 200),
        (b'{"path": "sideways"}', 400),
        (b'{"path": ["off"]}', 400),
        (b'{"who": "me"}', 400),
        (b'["path"]', 400),
        (b"null", 400),
        (b"", 400),
        (b"\xff\xfe{", 400),
        (b"[" * 60_000, 400),
        (b'{"path": "off", "who": "' + b"x" * (1 << 16) + b'"}', 413),
    ],
)
def test_an_order_takes_or_is_refused_and_the_pages_stay_readable(
    client: TestClient, state_dir: Path, body: bytes, status: int
) -> None:
    answer = client.post("/fastfill/path", content=body)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status != 200)
    wanted = "off" if status == 200 else "on"
    assert client.get("/fastfill/path").json()["path"] == wanted
    assert client.get("/fastfill/status").json()["path"]["path"] == wanted
    assert state.Switch(state_dir).is_off() == (status == 200)
    assert (state_dir / "audit.jsonl").exists() == (status == 200)


def test_who_and_why_are_one_short_line_each(state_dir: Path) -> None:
    value = state.write_path(state_dir, "off", "a\ud800b\x1b[31m", "x\n" * 10_000)
    assert value["who"] == "a\ufffdb\ufffd[31m"
    assert len(value["why"]) <= 500 and "\n" not in value["why"]
    assert len((state_dir / "audit.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"path": "sideways"}', '{"who": "x"}', "\udcff"])
def test_the_switch_and_its_page_agree_on_a_file_that_makes_no_sense(state_dir: Path, text: str) -> None:
    (state_dir / "path.json").write_bytes(text.encode(errors="surrogateescape"))
    assert state.Switch(state_dir).is_off()
    assert state.read_path(state_dir)["path"] == "off"


def test_a_switch_that_cannot_be_read_is_off_until_it_can(state_dir: Path) -> None:
    switch = state.Switch(state_dir)
    assert not switch.is_off()
    (state_dir / "path.json").symlink_to(state_dir / "path.json")  # a loop: stat fails, and not for want of the file
    assert switch.is_off()
    (state_dir / "path.json").unlink()
    assert not switch.is_off()


def test_a_read_that_failed_is_tried_again(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state.write_path(state_dir, "on", "", "")
    switch = state.Switch(state_dir)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda _self: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        assert switch.is_off()
    assert not switch.is_off()


def full(*_args: Any, **_kwargs: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_on_a_full_disk_the_path_can_be_turned_off(
    client: TestClient, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state.tempfile, "mkstemp", full)
    answer = client.post("/fastfill/path", json={"path": "off"})
    assert (answer.status_code, answer.json()["path"]) == (200, "off")
    assert state.Switch(state_dir).is_off()
    answer = client.post("/fastfill/path", json={"path": "on"})
    assert answer.status_code == 500 and "No space left" in answer.json()["error"]
    assert state.Switch(state_dir).is_off()


def test_a_switch_moves_although_the_audit_log_cannot_be_written(client: TestClient, state_dir: Path) -> None:
    (state_dir / "audit.jsonl").mkdir()
    assert client.post("/fastfill/path", json={"path": "off"}).status_code == 200
    assert state.Switch(state_dir).is_off()


def test_the_switch_moves_although_somebody_has_removed_the_folder(client: TestClient, state_dir: Path) -> None:
    shutil.rmtree(state_dir)
    switch = state.Switch(state_dir)
    assert not switch.is_off()
    assert client.post("/fastfill/path", json={"path": "off"}).status_code == 200
    assert switch.is_off()


def test_a_failed_write_leaves_no_file_behind(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        state.write_path(state_dir, "on", "", "")
    assert list(state_dir.iterdir()) == []


def test_a_line_that_a_full_disk_cut_short_costs_that_pass_only(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.prepare()
    mine = ring.Ring(state_dir, RANK)
    mine.append(record(1, "a"))
    with monkeypatch.context() as patch:
        write = os.write
        patch.setattr(os, "write", lambda handle, line: write(handle, line[:9]))
        with pytest.raises(OSError, match="No space"):
            mine.append(record(2, "a"))
    mine.append(record(3, "a"))
    assert [p["pass"] for p in ring.read(state_dir)[0]["passes"]] == [1, 3]


def test_a_status_that_cannot_be_read_hides_no_other_rank(client: TestClient, state_dir: Path) -> None:
    state.write_status(state_dir, {**RANK, "tp": 10}, {"rank": {**RANK, "tp": 10}})
    state.write_status(state_dir, {**RANK, "tp": 9}, {"rank": {**RANK, "tp": 9}})
    (state_dir / "status" / "pp0-dp0-tp0.json").write_text("{")
    ranks = client.get("/fastfill/status").json()["ranks"]
    assert [entry["rank"]["tp"] for entry in ranks] == [9, 10]


def test_other_clients_ids_stay_theirs(client: TestClient, state_dir: Path) -> None:
    """Whoever knows a request's id can abort it; a short start could be guessed one character after the other."""
    mine, theirs = "m" * 32, "conversation-4711"
    ring.Ring(state_dir, RANK).append(record(1, mine, theirs, "fastfill-probe-1"))

    def rids(asked: str) -> list[list[str]]:
        ranks = client.get("/fastfill/passes", params={"rid": asked}).json()["ranks"]
        return [one["rids"] for one in ranks[0]["passes"]]

    hidden = routes.HIDDEN
    assert rids("") == [[hidden, hidden, "fastfill-probe-1"]]
    assert rids(mine) == rids(mine[:16]) == [[mine, hidden, "fastfill-probe-1"]]
    assert rids("fastfill-probe-") == [[hidden, hidden, "fastfill-probe-1"]]
    assert rids("c") == rids("conv") == rids("mmmm") == []
    assert rids(theirs) == [[hidden, theirs, "fastfill-probe-1"]]


def test_an_id_of_any_length_or_content_neither_fills_the_ring_nor_breaks_the_page(
    client: TestClient, state_dir: Path
) -> None:
    ring.Ring(state_dir, RANK).append(record(1, "fastfill-" + "x" * 10_000_000, "fastfill-\ud800"))
    assert (state_dir / "passes" / "pp0-dp0-tp0.jsonl").stat().st_size < 1000
    answer = client.get("/fastfill/passes", params={"rid": "fastfill-" + "x" * 500})
    assert answer.status_code == 200
    assert answer.json()["ranks"][0]["passes"][0]["rids"][1] == "fastfill-\ud800"


def test_throwing_the_switch_asks_for_the_admin_key_where_there_is_one(state_dir: Path) -> None:
    from sglang.srt.utils.auth import add_api_key_middleware

    state.prepare()
    app = FastAPI()
    routes.add(app)
    add_api_key_middleware(app, api_key="user", admin_api_key="admin")
    client = TestClient(app)

    def asked(method: str, page: str, key: str) -> int:
        content = b'{"path": "off"}' if method == "POST" else None
        return client.request(
            method, f"/fastfill/{page}", content=content, headers={"Authorization": f"Bearer {key}"}
        ).status_code

    assert [asked("GET", page, "user") for page in ("path", "status", "passes")] == [200] * 3
    assert [asked("GET", page, "nobody") for page in ("path", "status", "passes")] == [401] * 3
    assert (asked("POST", "path", "user"), asked("POST", "path", "admin")) == (401, 200)


ANOTHER = "from sglang_fastfill import state; state.prepare()"


def test_a_second_server_in_the_folder_of_one_that_lives_is_refused(state_dir: Path) -> None:
    """``python -m sglang.launch_server --help`` in the server's container is one: it loads the plugins too."""
    state.prepare()
    state.write_status(state_dir, RANK, {"rank": RANK})
    ran = subprocess.run([sys.executable, "-c", ANOTHER], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "another server uses the state folder" in ran.stderr and "Next:" in ran.stderr
    assert state.read_statuses(state_dir) == [{"rank": RANK}]


def test_a_server_that_died_leaves_its_folder_to_the_next(state_dir: Path) -> None:
    killed = f"{ANOTHER}; import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -9
    (state_dir / ".path.json.abc").touch()
    (state_dir / "passes" / "somebody's folder").mkdir()
    state.prepare()
    assert not (state_dir / ".path.json.abc").exists()


def test_without_a_folder_named_the_default_is_private_and_goes_with_the_server(monkeypatch: Any) -> None:
    monkeypatch.delenv(state.STATE_DIR)
    code = f"{ANOTHER}; print(state.folder(), oct(state.folder().stat().st_mode & 0o777))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    place, mode = ran.stdout.split()
    assert mode == "0o700"
    assert not Path(place).exists()
