"""`fastfill serve` as it is run: what it hands to the server's module, what it refuses before that, where it writes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid()}))
"""
BACKEND = "sglang/srt/layers/attention/aiter_backend.py"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with a package in sglang's place that prints what it was started with."""
    (tmp_path / BACKEND).parent.mkdir(parents=True)
    (tmp_path / BACKEND).write_text("from sglang_fastfill import prefill\n")
    (tmp_path / "sglang" / "__init__.py").write_text("")
    (tmp_path / "sglang" / "launch_server.py").write_text(MODULE)
    return tmp_path


def python_path(place: Path) -> str:
    return os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])


def serve(place: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastfill", "serve", "--model", "org/model", *words]
    env = {**os.environ, "PYTHONPATH": python_path(place), "XDG_STATE_HOME": str(place / "state"), **environ}
    env.pop("FASTFILL_STATE_DIR", None)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_becomes_the_server_with_the_command_that_print_shows(place: Path) -> None:
    port = str(free_port())
    words = ("--profile", "long-context", "--port", port, "--", "--reasoning-parser", "qwen3")
    ran = serve(place, *words)
    assert ran.returncode == 0, ran.stderr
    server = json.loads(ran.stdout)
    document = json.loads(serve(place, "--json", *words).stdout)
    assert document["argv"] == [sys.executable, "-m", "sglang.launch_server", *server["argv"]]
    assert server["argv"][-2:] == ["--reasoning-parser", "qwen3"]
    assert document["env"].items() <= server["env"].items()
    assert "memory:  one GPU" in ran.stderr


def test_it_replaces_itself_so_that_signals_reach_the_server(place: Path) -> None:
    command = [sys.executable, "-m", "fastfill", "serve", "--model", "org/model", "--profile", "off"]
    env = {**os.environ, "PYTHONPATH": python_path(place), "XDG_STATE_HOME": str(place / "state")}
    started = subprocess.Popen(
        [*command, "--port", str(free_port())], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    printed, _ = started.communicate(timeout=60)
    assert json.loads(printed)["pid"] == started.pid


def test_the_state_folder_is_made_for_the_owner_only(place: Path) -> None:
    port = free_port()
    serve(place, "--profile", "off", "--port", str(port))
    folder = place / "state" / "fastfill" / str(port)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_print_runs_nothing_and_writes_nothing(place: Path) -> None:
    shown = serve(place, "--profile", "long-context", "--print", "--", "--api-key", "s3cret")
    assert shown.stdout.startswith("env SGLANG_AITER_FMHA_FP8_ASM=1 ")
    assert shown.stdout.count("\n") == 1
    assert "s3cret" not in shown.stdout + shown.stderr
    assert not (place / "state").exists()


def test_a_secret_is_not_said_when_it_runs_either(place: Path) -> None:
    ran = serve(place, "--profile", "off", "--port", str(free_port()), "--", "--api-key", "s3cret")
    assert json.loads(ran.stdout)["argv"][-1] == "s3cret"
    assert "s3cret" not in ran.stderr


def test_a_contradiction_exits_2_before_anything_starts(place: Path) -> None:
    refused = serve(
        place, "--profile", "long-context", "--", "--attention-backend", "triton", "--kv-cache-dtype", "auto"
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "[backend_not_aiter]" in refused.stderr
    assert "[kv_dtype_not_fp8]" in refused.stderr
    assert "--allow backend_not_aiter --allow kv_dtype_not_fp8" in refused.stderr
    assert not (place / "state").exists()


def test_the_document_of_a_refused_launch_holds_the_findings(place: Path) -> None:
    refused = serve(place, "--profile", "long-context", "--json", "--", "--attention-backend", "triton")
    findings = json.loads(refused.stdout)["findings"]
    assert (refused.returncode, [finding["id"] for finding in findings]) == (2, ["backend_not_aiter"])


def test_what_is_allowed_starts(place: Path) -> None:
    words = ("--profile", "long-context", "--port", str(free_port()), "--allow", "backend_not_aiter")
    ran = serve(place, *words, "--", "--attention-backend", "triton")
    assert ran.returncode == 0, ran.stderr
    assert "warn: [backend_not_aiter]" in ran.stderr


def test_a_taken_port_exits_4_and_says_how_to_find_who(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = serve(place, "--profile", "off", "--port", str(port))
    assert (refused.returncode, refused.stdout) == (4, "")
    assert f"port {port} cannot be used" in refused.stderr
    assert "ss -ltnp" in refused.stderr


def test_an_unpatched_sglang_exits_4_with_the_flag_on_only(place: Path) -> None:
    (place / BACKEND).write_text("pass\n")
    refused = serve(place, "--profile", "long-context", "--port", str(free_port()))
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "fastfill patch apply" in refused.stderr
    assert serve(place, "--profile", "off", "--port", str(free_port())).returncode == 0
    words = ("--profile", "long-context", "--port", str(free_port()), "--allow", "patch_missing")
    assert serve(place, *words).returncode == 0


def with_aiter(place: Path, body: str) -> dict[str, str]:
    """Put a torch and a selfcheck in place that do what the body says; the command around them is the real one."""
    checks = place / "sitecustomize.py"
    checks.write_text(
        "import sys, types\n"
        "torch = types.ModuleType('torch'); torch.cuda = types.SimpleNamespace(is_available=lambda: False)\n"
        "sys.modules['torch'] = torch\n"
        "checks = types.ModuleType('sglang_fastfill.selfcheck')\n"
        f"def run(device):\n    {body}\n"
        "checks.run = run\n"
        "sys.modules['sglang_fastfill.selfcheck'] = checks\n"
        "import sglang_fastfill; sglang_fastfill.selfcheck = checks\n"
    )
    return {"PYTHONPATH": python_path(place)}


RESULT = "types.SimpleNamespace(name='one sequence of 512', ok={ok}, error=0.5, kind={kind!r}, detail='rows 256 on')"


def test_serve_starts_when_selfcheck_passes_and_not_when_it_fails(place: Path) -> None:
    words = ("--profile", "off", "--selfcheck", "--port", str(free_port()))
    env = with_aiter(place, f"return [{RESULT.format(ok=True, kind='')}]")
    ran = serve(place, *words, **env)
    assert (ran.returncode, "selfcheck: right: 1 of 1 cases" in ran.stderr) == (0, True), ran.stderr
    env = with_aiter(place, f"return [{RESULT.format(ok=False, kind='rows unwritten')}]")
    refused = serve(place, *words, **env)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the server was not started: WRONG: rows unwritten" in refused.stderr
    assert "FAIL  one sequence of 512: rows unwritten: rows 256 on" in refused.stderr
    assert serve(place, "--profile", "off", "--port", str(free_port()), **env).returncode == 0, "not asked for"


def test_the_profile_can_ask_for_selfcheck_and_the_option_wins(place: Path) -> None:
    mine = place / "mine.toml"
    mine.write_text('extends = "off"\n[fastfill]\nselfcheck = true\n')
    env = with_aiter(place, f"return [{RESULT.format(ok=False, kind='nan')}]")
    words = ("--profile", str(mine), "--port", str(free_port()))
    assert serve(place, *words, **env).returncode == 1
    assert serve(place, *words, "--no-selfcheck", **env).returncode == 0


def test_a_selfcheck_that_cannot_run_exits_4(place: Path) -> None:
    env = with_aiter(place, "raise ImportError('no module named aiter')")
    refused = serve(place, "--profile", "off", "--selfcheck", "--port", str(free_port()), **env)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "selfcheck could not be run" in refused.stderr and "aiter cannot be imported" in refused.stderr


def test_an_interpreter_without_sglang_exits_4(place: Path) -> None:
    refused = serve(place / "state", "--profile", "off", "--port", str(free_port()))
    assert (refused.returncode, "has no SGLang" in refused.stderr) == (4, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--profile", "fast"), "there is no profile 'fast'"),
        (("--profile", "off", "--env", "NOVALUE"), "write NAME=VALUE"),
        (("--profile", "off", "--tp", "0"), "Invalid value for '--tp'"),
        (("--profile", "off", "--pages", "16"), "No such option"),
        (("--profile", "off", "--state-dir", "/proc/none", "--print"), ""),
    ],
)
def test_usage_errors_exit_2(place: Path, words: tuple[str, ...], says: str) -> None:
    answer = serve(place, *words)
    assert says in answer.stderr
    assert answer.returncode == (2 if says else 0)


def test_a_state_folder_that_cannot_be_made_exits_4(place: Path) -> None:
    words = ("--profile", "off", "--port", str(free_port()), "--state-dir", "/proc/none")
    refused = serve(place, *words)
    assert (refused.returncode, "--state-dir" in refused.stderr) == (4, True)


def test_a_state_folder_that_cannot_be_written_exits_4_before_anything_starts(place: Path) -> None:
    words = ("--profile", "off", "--port", str(free_port()), "--state-dir", "/proc/self")
    refused = serve(place, *words)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "the state folder cannot be written" in refused.stderr
