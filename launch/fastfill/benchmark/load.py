"""Makes the load: SGLang's own benchmark, driven over a pipe, with a time limit for each run."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fastfill.benchmark.grid import Cell
from fastfill.benchmark.journal import FULL
from fastfill.errors import NotReadyError

START_S = 180.0
KEYS = ("OPENAI_API_KEY", "API_KEY")
_PROGRAM = Path(__file__).with_name("loader.py")


def arguments(cell: Cell, *, url: str, seed: int, file: Path, tokenizer: str) -> list[str]:
    """The arguments of ``python -m sglang.benchmark.serving`` for one run.

    ``--tokenize-prompt`` sends token ids: without it a prompt of random ids is decoded to text, and what the server
    then prefills is not the length that the report says. Range ratio 1 keeps every request at the stated length.
    ``--flush-cache`` after the warm-up request, which is the first prompt of the run itself.
    """
    return [
        "--backend", "sglang", "--base-url", url, "--dataset-name", "random-ids",
        "--random-input-len", str(cell.isl), "--random-output-len", str(cell.osl), "--random-range-ratio", "1.0",
        "--num-prompts", str(cell.prompts), "--max-concurrency", str(cell.conc), "--seed", str(seed),
        "--tokenize-prompt", "--flush-cache", "--warmup-requests", "1", "--disable-tqdm", "--output-details",
        "--tokenizer", tokenizer, "--output-file", str(file),
    ]  # fmt: skip


class Loader:
    """The benchmark's process, started when it is first needed and again after it was killed.

    Args:
        python: The interpreter that has SGLang.
        env: Its whole environment.
        log: Where its talk goes.
        key: The server's API key.
    """

    def __init__(self, python: Path, env: dict[str, str], log: Path, key: str | None = None) -> None:
        self._argv = [str(python), str(_PROGRAM)]
        # The benchmark's own names for the key of whatever server it talks to: another service's, from the user's
        # shell, is not for this one.
        self._env = {name: value for name, value in env.items() if name not in KEYS}
        if key:
            self._env[KEYS[0]] = key
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, words: list[str], timeout_s: float) -> str:
        """One run.

        Returns:
            Why it failed; empty when the benchmark ended as it should.

        Raises:
            NotReadyError: The benchmark cannot be started in this interpreter.
            OSError: The disk is full.
        """
        child = self._started()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(words).encode() + b"\n")
            child.stdin.flush()
        except OSError:
            self.stop()
            return "the benchmark's process had died"
        try:
            answer = self._answer(timeout_s)
        except (TimeoutError, EOFError) as error:
            self.stop()
            timed_out = isinstance(error, TimeoutError)
            return f"the client was cut off after {timeout_s:.0f} s" if timed_out else "the benchmark's process died"
        if answer.get("errno") in FULL:
            raise OSError(answer["errno"], answer.get("why"))
        return str(answer.get("why", ""))

    def stop(self) -> None:
        """End the process and what it has started."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None:
            return self._child
        self._rest = b""
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._argv,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._answer(START_S)
        except (TimeoutError, EOFError):
            self.stop()
            raise NotReadyError(
                "SGLang's benchmark cannot be started",
                where=self._argv[0],
                detail="\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]),
                next_step="name an interpreter that has SGLang and the package datasets: --python PATH",
            ) from None
        return self._child

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        """The next line.

        Raises:
            TimeoutError: None came in time.
            EOFError: The process ended.
        """
        assert self._child is not None
        assert self._child.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                more = os.read(self._child.stdout.fileno(), 65536)
                if not more:
                    raise EOFError
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found
