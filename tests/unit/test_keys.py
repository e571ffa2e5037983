"""API keys: from files to SGLang, and nowhere else."""

from __future__ import annotations

import asyncio
import logging
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_run import fastfill

from fastfill.errors import UsageError
from fastfill.serving import keys
from sglang_fastfill import redact

KEY = "sk-planted-0123456789"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    return file


def test_serve_hands_it_over_in_a_file_and_shows_it_nowhere(key_file: Path, tmp_path: Path) -> None:
    words = ["serve", "--profile", "long-context", "--model", "x/y", "--state-dir", str(tmp_path / "state")]
    for output in ("--print", "--json"):
        ran = fastfill(*words, "--api-key-file", str(key_file), output)
        assert ran.code == 0, ran.err
        assert str(tmp_path / "state/keys.yaml") in ran.out
        assert KEY not in ran.out + ran.err
    assert not (tmp_path / "state").exists(), "a dry run writes nothing"


def test_the_file_is_its_owners_alone_and_goes_with_the_keys(tmp_path: Path) -> None:
    keys.write(tmp_path, {"api-key": KEY, "admin-api-key": 'a"b'})
    file = tmp_path / keys.NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == f'api-key: "{KEY}"\nadmin-api-key: "a\\"b"\n'
    keys.write(tmp_path, {})
    assert not file.exists()


def test_an_empty_file_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    assert keys.read({"api-key": tmp_path / "empty", "admin-api-key": None}) == {}


def test_an_empty_file_that_somebody_names_is_no_open_server(tmp_path: Path) -> None:
    """Compose mounts an empty file by a variable where no key is wanted; whoever writes the option wants one."""
    empty = tmp_path / "empty"
    empty.write_text("")
    words = ("serve", "--profile", "off", "--model", "x/y", "--state-dir", str(tmp_path / "state"), "--print")
    for option in ("--api-key-file", "--admin-api-key-file"):
        ran = fastfill(*words, option, str(empty))
        assert ran.code == 2 and f"the file of {option.removesuffix('-file')} is empty" in ran.err, ran.err
    assert fastfill(*words, env={"FASTFILL_API_KEY_FILE": str(empty)}).code == 0


@pytest.mark.parametrize("content", ["two words", "line\nline", "schlüssel"])
def test_what_is_no_key_is_refused_unseen(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(UsageError) as refused:
        keys.read({"api-key": tmp_path / "key"})
    assert content not in "\n".join(refused.value.lines())


def test_a_config_file_of_the_users_own_and_keys_are_refused(key_file: Path) -> None:
    words = ["serve", "--profile", "long-context", "--model", "x/y", "--api-key-file", str(key_file), "--print"]
    ran = fastfill(*words, "--", "--config", "mine.yaml")
    assert ran.code == 2
    assert "--config" in ran.err


def test_no_page_and_no_text_of_the_server_shows_it() -> None:
    @dataclass
    class ServerArgs:
        api_key: str | None = KEY
        admin_api_key: str | None = None
        port: int = 1

    redact.hide_in_text(ServerArgs)
    redact.hide_in_text(ServerArgs)
    shown = f"{ServerArgs()=}"
    assert KEY not in shown
    assert "admin_api_key=None" in shown and "port=1" in shown
    assert ServerArgs().api_key == KEY
    info = {"api_key": KEY, "admin_api_key": None, "internal_states": [{"x": {"api_key": KEY}}], "port": 1}
    hidden = redact.without_secrets(info)
    assert KEY not in str(hidden)
    assert hidden["admin_api_key"] is None and hidden["port"] == 1


@pytest.mark.parametrize("key", [KEY, "it's", 'say "x"', "back\\\\slash'"])
def test_the_line_of_newer_releases_shows_it_neither(key: str, caplog: pytest.LogCaptureFixture) -> None:
    redact.hide_in_log()
    redact.hide_in_log()
    arguments = {"port": 1, "api_key": key, "admin_api_key": None, "model": "api_key"}
    logging.getLogger(redact.LOGGER).warning(f"server_args={arguments}")
    (line,) = caplog.messages
    assert line == str({**arguments, "api_key": "(redacted)"}).join(["server_args=", ""])


@pytest.mark.parametrize("written", ["--api-key {} --port 1", "--api-key={} --port 1", "--port 1 --admin-api-key '{}'"])
def test_the_command_line_on_a_page_shows_it_neither(written: str) -> None:
    hidden = redact.without_secrets({"launch_command": "python -m sglang.launch_server " + written.format(KEY)})
    assert KEY not in str(hidden)
    assert "--port 1" in hidden["launch_command"] and "(redacted)" in hidden["launch_command"]


@pytest.mark.parametrize("key", [KEY, "it's", 'say "x"', "a'b\"c'd"])
def test_a_key_that_the_shell_quotes_shows_no_part_of_itself(key: str) -> None:
    hidden = redact.without_secrets({"launch_command": shlex.join(["python", "--api-key", key, "--port", "1"])})
    assert hidden == {"launch_command": "python --api-key (redacted) --port 1"}


def test_a_page_is_replaced_and_no_other() -> None:
    class Route:
        def __init__(self, path: str) -> None:
            self.path, self.methods = path, {"GET"}

            async def endpoint() -> dict[str, str]:
                return {"api_key": KEY}

            self.endpoint = endpoint

    class App:
        def __init__(self) -> None:
            self.router = self
            self.routes = [Route("/server_info"), Route("/health")]

        def add_api_route(self, path: str, endpoint: object, methods: list[str]) -> None:
            route = Route(path)
            route.endpoint = endpoint  # type: ignore[assignment]
            self.routes.append(route)

    app = App()
    redact.hide_in_pages(app)
    said = {route.path: asyncio.run(route.endpoint()) for route in app.routes}
    assert said == {"/health": {"api_key": KEY}, "/server_info": {"api_key": "(redacted)"}}
