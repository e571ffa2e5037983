"""What a benchmark does when something ends badly: what is told first, what is left behind, whose key is used."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_fakes import WISH, World, bench
from cli_run import fastfill
from contract_server import ContractServer
from pytest_httpserver import HTTPServer

from fastfill.benchmark import arms, proven, report, setup
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.ending import closing
from fastfill.benchmark.journal import Journal, Unwritable, alone
from fastfill.benchmark.load import Loader
from fastfill.benchmark.restart import require_free
from fastfill.benchmark.setup import Start, restarting
from fastfill.benchmark.target import PathTarget
from fastfill.errors import FastfillError, NotReadyError, UsageError
from fastfill.proof import address
from fastfill.serving.profile import load
from ports import free_port

ON = arms.compare(load("off"), load("long-context"), switch=None).b
ALL = 4 * (WISH.blocks + WISH.noise)


def raising(error: BaseException) -> Callable[[], None]:
    def end() -> None:
        raise error

    return end


def test_every_end_is_run_and_the_first_error_is_the_one_that_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[int] = []
    late = NotReadyError("cannot reach the server", next_step="start one")
    with (
        pytest.raises(FastfillError, match="how it died"),
        closing(raising(late), lambda: ended.append(1), raising(ValueError("odd"))),
    ):
        raise FastfillError("how it died")
    assert ended == [1]
    told = capsys.readouterr().err
    assert "cannot reach the server" in told and "start one" in told and "odd" in told
    with pytest.raises(NotReadyError, match="cannot reach"), closing(raising(late), lambda: ended.append(2)):
        pass
    assert ended == [1, 2]


@pytest.mark.parametrize("when", ["during a run", "never"])
def test_a_server_that_cannot_be_tidied_up_is_said_in_the_report(tmp_path: Path, when: str) -> None:
    world = World()
    world.close = raising(NotReadyError("the kill switch could not be put back"))  # type: ignore[method-assign]

    def dies(name: str, file: Path) -> str:
        world.lives = len(world.loads) < 5
        return world.well(name, file) if world.lives else "ConnectionRefusedError: refused"

    if when == "during a run":
        world.script = dies
    stopped = bench(tmp_path, world)[0].run()
    wanted = "died during" if when == "during a run" else "could not be put back"
    assert wanted in stopped
    assert any(wanted in line for line in report.read(tmp_path).interruptions)


@pytest.mark.parametrize(
    "error", [FastfillError("the kill switch does not go on"), UsageError("wants a key", where="u")]
)
def test_whatever_stops_it_is_in_the_journal(tmp_path: Path, error: FastfillError) -> None:
    world = World()
    world.take = lambda arm: raising(error)()  # type: ignore[method-assign]
    stopped = bench(tmp_path, world)[0].run()
    assert stopped.startswith(error.what)
    (line,) = report.read(tmp_path).interruptions
    assert error.what in line


def test_a_switch_that_cannot_be_put_back_says_where_it_must_go(httpserver: HTTPServer) -> None:
    server = ContractServer(httpserver)
    target = PathTarget(Connection(server.url), "me@here")
    target.take(ON._replace(path="off"))
    target.connection.url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(FastfillError, match="was on before this benchmark") as raised:
        target.close()
    assert raised.value.next_step == f"fastfill path on --url {server.url}"
    target.close()


def test_a_switch_that_a_killed_benchmark_left_turned_is_put_where_it_was(
    httpserver: HTTPServer, tmp_path: Path
) -> None:
    server = ContractServer(httpserver)
    PathTarget(Connection(server.url), "me@here", Journal(tmp_path, {"x": 1})).take(ON._replace(path="off"))
    assert server.path["path"] == "off"
    resumed = PathTarget(Connection(server.url), "me@here", Journal(tmp_path, {"x": 1}))
    resumed.take(ON._replace(path="off"))
    resumed.close()
    assert server.path["path"] == "on"
    server.path = {**server.path, "path": "off"}
    later = PathTarget(Connection(server.url), "me@here", Journal(tmp_path, {"x": 1}))
    later.take(ON)
    later.close()
    assert server.path["path"] == "off"


def test_a_proof_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(argv: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(argv, options["timeout"])

    monkeypatch.setattr(proven.subprocess, "run", late)
    with pytest.raises(NotReadyError, match="did not end within 70 s"):
        proven.prove(Connection("http://h:1"), ON, deadline_s=10, prompt_tokens=None)


def test_an_explicit_key_wins_over_the_environment(
    httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the proof's process too: a file that the environment names there would win over the key that is handed on."""
    server = ContractServer(httpserver, key="right", admin_key="chief")
    for name, key in (("right", "right"), ("chief", "chief"), ("wrong", "wrong")):
        (tmp_path / name).write_text(key)
    for variable in (address.KEY_FILE_VARIABLE, address.ADMIN_KEY_FILE_VARIABLE):
        monkeypatch.setenv(variable, str(tmp_path / "wrong"))
    monkeypatch.setenv(address.KEY_VARIABLE, "wrong")
    access = setup.access(tmp_path / "right", tmp_path / "chief")
    assert (access.key, access.admin) == ("right", "chief")
    connection = Connection(server.url, access.key, access.admin)
    proof = proven.prove(connection, ON, deadline_s=20, prompt_tokens=64)
    assert proof.document["verdict"] == "FIRED", proof.why
    assert PathTarget(connection, "me").take(ON._replace(path="off")) is False
    assert server.path["path"] == "off"


def test_a_server_that_is_started_here_gets_the_key_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("k")
    monkeypatch.chdir(tmp_path)
    access = setup.access(Path("key"), None)
    assert access.files == ("--api-key-file", str(tmp_path / "key"))
    (tmp_path / "mine.toml").write_text('extends = "off"\n')
    target, _ = restarting(
        {"A": "off", "B": "mine.toml"},
        Connection("http://127.0.0.1:1"),
        tmp_path,
        Start("M", None, 1, free_port(), keys=access.files),
    )
    argv = target._argv(target._profiles["B"])
    assert argv[argv.index("--profile") + 1] == str(tmp_path / "mine.toml")
    assert argv[argv.index("--api-key-file") + 1] == str(tmp_path / "key")
    assert argv[argv.index("--model") + 1] == "M", "a name of the hub's stays what it is"


def test_what_is_named_from_here_is_found_from_the_servers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "key").write_text("k")
    monkeypatch.setenv(address.KEY_FILE_VARIABLE, "key")
    start = Start("models/m", None, 1, free_port())
    target, model = restarting({"A": "off"}, Connection("http://127.0.0.1:1"), tmp_path, start)
    argv = target._argv("off")
    assert argv[argv.index("--model") + 1] == model == str(tmp_path / "models" / "m")
    assert target._env[address.KEY_FILE_VARIABLE] == str(tmp_path / "key")


def test_an_interpreter_is_found_from_anywhere_or_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    assert setup.find_interpreter(Path("./python"))[0] == tmp_path / "python", "a virtual environment's link stays one"
    for words in (AB, ("accuracy",)):
        ran = fastfill("bench", *words, *UP, "--python", str(tmp_path / "none"))
        assert ran.code == 2 and "there is no such interpreter" in ran.err, ran.err


def test_a_taken_port_is_said_before_a_server_is_started_there(httpserver: HTTPServer) -> None:
    with pytest.raises(NotReadyError, match="is taken"):
        require_free(httpserver.port)


def test_another_services_key_is_not_sent(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": "theirs", "API_KEY": "theirs", "PATH": "/bin"}
    assert Loader(Path("python"), env, tmp_path / "log")._env == {"PATH": "/bin"}
    assert Loader(Path("python"), env, tmp_path / "log", "ours")._env == {"PATH": "/bin", "OPENAI_API_KEY": "ours"}


@pytest.mark.parametrize(
    "words",
    [
        ["accuracy", "--bf16-url", "http://127.0.0.1:{port}", "--url", "http://127.0.0.1:{port}"],
        ["ab", "--a", "off", "--b", "long-context", "--grid", "isl=1 osl=1 conc=1", "--url", "http://127.0.0.1:{port}"],
    ],
)
def test_a_dead_port_leaves_nothing_behind(tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.format(port=free_port()) for word in words]
    ran = fastfill("bench", *words, "--python", sys.executable)
    assert (ran.code, "cannot reach the server" in ran.err) == (4, True), ran.err
    assert list(tmp_path.iterdir()) == []


AB = ("ab", "--a", "off", "--b", "long-context", "--grid", "isl=1 osl=1 conc=1")
UP = ("--url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*AB, *UP, "--tp", "4"), "--tp has no effect here"),
        ((*AB, *UP, "--port", "31000"), "--port has no effect here"),
        ((*AB, *UP, "--longest-prompt", "9"), "--longest-prompt has no effect here"),
        ((*AB, "--lab", "dense", "--longest-prompt", "9"), "--longest-prompt has no effect here"),
        ((*AB, *UP, "--", "--page-size", "16"), "words after -- are for servers that are started here"),
        ((*AB, "--model", "m", "--lab", "dense"), "several servers are named"),
        ((*AB, "--model", "m", "--", "--api-key", "sk-planted"), "give --api-key-file FILE before --"),
        (("accuracy", "--model", "m", "--", "--admin-api-key=sk-planted"), "give --admin-api-key-file FILE before --"),
        (("accuracy", *UP, "--tp", "4"), "--tp has no effect here"),
        (("accuracy", *UP, "--", "--page-size", "16"), "words after -- are for servers that are started here"),
        (("accuracy", "--model", "m", "--lab", "dense"), "several servers are named"),
        (("accuracy", *UP, "--model", "m"), "name servers that are up"),
        (("accuracy", "--bf16-url", UP[1]), "no server is named"),
    ],
)
def test_what_would_be_left_unheard_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = fastfill("bench", *words)
    assert ran.code == 2 and says in ran.err and "next:" in ran.err, ran.err
    assert "sk-planted" not in ran.out + ran.err
    assert list(tmp_path.iterdir()) == []


def test_another_secret_among_sglangs_words_is_not_kept_in_the_plan() -> None:
    words = ("--ssl-keyfile-password", "sk-planted", "--page-size", "16")
    job = setup.settle(WISH._replace(url=None, model="m", extra=words))
    assert job.plan["extra"] == ["--ssl-keyfile-password", "(redacted)", "--page-size", "16"]


def test_two_commands_do_not_share_a_folder(tmp_path: Path) -> None:
    program = (
        f"from pathlib import Path\nfrom fastfill.benchmark.journal import alone\nwith alone(Path({str(tmp_path)!r})):"
    )
    with alone(tmp_path):
        ran = subprocess.run([sys.executable, "-c", f"{program} pass"], capture_output=True, text=True, check=False)
    assert "another command is at work" in ran.stderr
    subprocess.run([sys.executable, "-c", f"{program} pass"], check=True)


FULL = """
import sys
def get_tokenizer(name):
    return print("read", name)
def cli_main():
    with open("/dev/full", "a") as file:
        file.write("x" * 100000)
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_under_the_load_generator_is_no_void_run(tmp_path: Path) -> None:
    package = tmp_path / "sglang" / "benchmark"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "serving.py").write_text(FULL)
    world = World()
    folder = tmp_path / "out"
    with Loader(Path(sys.executable), {"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as loader:
        world.script = lambda name, file: loader.run([], 20)
        with pytest.raises(Unwritable, match="the disk is full"):
            bench(folder, world)[0].run()
    bench(folder, World())[0].run()
    document = report.read(folder)
    assert document.complete and len(document.runs) == ALL
    assert document.cells[0].verdict == "faster"
    assert any("the disk is full" in line for line in document.interruptions)


def test_a_line_that_could_not_be_written_is_not_there_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, {"x": 1})
    journal.add("one")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Unwritable):
            journal.add("two", much="x" * 100000)
    journal.add("three")
    assert [event["event"] for event in Journal(tmp_path, {"x": 1}).events] == ["one", "three"]
    assert [json.loads(line)["event"] for line in (tmp_path / "journal.jsonl").open()] == ["one", "three"]
