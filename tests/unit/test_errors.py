"""What a command leaves behind when it ends without a result: exit code, stderr, and a document for --json."""

from __future__ import annotations

import ast
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import cli_run
import pytest

from fastfill import errors

DEAD = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("explain", "--json"), 2),
        (("path", "on", "--url", DEAD, "--json"), 4),
        (("kernel", "identify", "/nowhere", "--json"), 2),
        (("serve", "--profile", "nope", "--model", "a/b", "--json"), 2),
        (("plan", "--workload", "isl=1", "--model", "/nowhere", "--json"), 2),
    ],
)
def test_json_has_a_document_on_an_error_too(words: tuple[str, ...], code: int) -> None:
    ran = cli_run.fastfill(*words)
    found = json.loads(ran.out)
    assert found["schema"] == "fastfill.error/1"
    assert found["error"]["exit_code"] == ran.code == code
    assert ran.err.startswith(f"error: {found['error']['what']}\n")


def test_prove_has_one_document_on_an_error_its_own() -> None:
    assert json.loads(cli_run.fastfill("prove", "--url", DEAD, "--json").out)["schema"] == "fastfill.prove/1"


def test_sglang_s_own_json_option_is_not_ours() -> None:
    assert cli_run.fastfill("serve", "--profile", "nope", "--model", "a/b", "--", "--json").out == ""


def test_a_ctrl_c_is_said_and_ends_with_130() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        words = [sys.executable, "-m", "fastfill", "health", "--url", url, "--wait", "60"]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
            silent.settimeout(60)
            with silent.accept()[0] as connection:
                connection.recv(1)
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.endswith(b"interrupted\n")


@pytest.mark.parametrize(("name", "code"), [("notes.md", 2), ("torn.co", 1)])
def test_a_file_that_is_no_kernel_has_no_revision(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / name).write_text("# Notes\n")
    ran = cli_run.fastfill("kernel", "identify", str(tmp_path / name))
    assert ran.code == code
    assert "not a whole ELF" in ran.out + ran.err
    assert "newer" not in ran.out


@pytest.mark.parametrize(("name", "says"), [("x.json", "no model's folder"), ("", "config.json cannot be read")])
def test_serve_wants_a_folder_with_a_config(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "x.json").write_text("{}")
    ran = cli_run.fastfill("serve", "--print", "--profile", "off", "--model", str(tmp_path / name))
    assert ran.code == 2
    assert says in ran.err


@pytest.mark.parametrize(
    ("words", "where", "says"),
    [
        (("prove", "--json", "--nosuch"), "fastfill prove", "--nosuch"),
        (("explain", "--json", "--tp", "0"), "fastfill explain", "--tp"),
        (("path", "on", "--json"), "fastfill path on", "--url"),
        (("frob", "--json"), "fastfill", "frob"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_an_error_like_any_other(
    words: tuple[str, ...], where: str, says: str
) -> None:
    ran = cli_run.fastfill(*words)
    error = json.loads(ran.out)["error"]
    assert (ran.code, error["exit_code"], error["where"]) == (2, 2, where)
    assert says in error["what"] and error["what"] in ran.err and error["next_step"] == f"{where} --help"
    bare = cli_run.fastfill(*(word for word in words if word != "--json"))
    assert (bare.code, bare.out) == (2, "") and says in bare.err


ERRORS = {"FastfillError", "UsageError", "NotReadyError"}
PACKAGE = Path(errors.__file__).parent
LATER = ("planning/", "explaining/", "benchmark/journal.py", "benchmark/proven.py")
"""What a committed measurement was made from is changed together with the next one."""
CAUGHT = ("fleet/switch.py",)
"""They end in an outcome's ``why``; its reader is a playbook, which says what to do."""


def without(keyword: str) -> list[str]:
    """Where an error is made without it."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        name = str(file.relative_to(PACKAGE))
        if name.startswith((*LATER, *CAUGHT)):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS
            if made and keyword not in {one.arg for one in node.keywords}:  # type: ignore[attr-defined]
                found.append(f"{name}:{node.lineno}")  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("keyword", ["where", "next_step"])
def test_every_error_says_where_and_what_to_do_next(keyword: str) -> None:
    assert without(keyword) == []
    assert len(without("no_such_keyword")) > 150, "it looks at nothing"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("serve", "--profile", "off", "--model", "a/b", "--print", "--json"), "--print"),
        (("lab", "down", "--all", "--port", "30000"), "--port"),
    ],
)
def test_an_option_that_nothing_would_hear_is_refused(words: tuple[str, ...], option: str) -> None:
    ran = cli_run.fastfill(*words)
    assert ran.code == 2 and f"{option} has no effect here" in ran.err
