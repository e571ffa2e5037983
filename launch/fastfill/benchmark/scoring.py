"""Puts questions to a server by lm-eval, offline, and reads which were answered right."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from fastfill import output
from fastfill.benchmark import report
from fastfill.benchmark.questions import Question, is_right, prompt
from fastfill.errors import FastfillError, NotReadyError

TASK = "fastfill_questions"


class Harness(NamedTuple):
    """How lm-eval is run: its interpreter, its environment, and what it should know of the server."""

    python: Path
    env: dict[str, str]
    tokenizer: str
    concurrency: int = 8
    answer_tokens: int = 256
    timeout_s: float = 7200.0


def task(data: Path, answer_tokens: int) -> str:
    """The task's file, in JSON, which is YAML too: one prompt a document, answered greedily, taken as it comes.

    lm-eval's own few-shot prefixes are off: they start all prompts with the same tokens.
    """
    document: dict[str, Any] = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "num_fewshot": 0,
        "generation_kwargs": {"until": ["Question:"], "max_gen_toks": answer_tokens, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    return json.dumps(document, indent=1) + "\n"


def argv(harness: Harness, url: str, model: str, folder: Path, context: int) -> list[str]:
    """lm-eval's command line."""
    server = {
        "base_url": f"{url}/v1/completions", "model": model, "tokenizer": harness.tokenizer,
        "tokenizer_backend": "huggingface", "tokenized_requests": "True", "num_concurrent": str(harness.concurrency),
        "max_retries": "1", "max_length": str(context),
    }  # fmt: skip
    return [
        str(harness.python), "-m", "lm_eval", "--model", "local-completions",
        "--model_args", ",".join(f"{name}={value}" for name, value in server.items()),
        "--tasks", TASK, "--include_path", str(folder), "--output_path", str(folder / "out"), "--log_samples",
    ]  # fmt: skip


def score(
    harness: Harness, url: str, questions: list[Question], folder: Path, *, model: str, context: int, key: str | None
) -> list[bool]:
    """Put every question to the server; returns which were answered right, in their order.

    Args:
        harness: How to run lm-eval.
        url: The server.
        questions: What to ask.
        folder: An empty folder for the task, lm-eval's files and its log.
        model: The server's name for its model.
        context: Tokens that a request may have.
        key: The server's API key.

    Raises:
        NotReadyError: lm-eval is not there.
        FastfillError: It failed, or left questions out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = (folder / "questions.jsonl").absolute()
    rows = [{"id": number, "prompt": prompt(one, number), "answer": one.answer} for number, one in enumerate(questions)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "task.yaml").write_text(task(data, harness.answer_tokens), encoding="utf-8")
    env = {
        **harness.env,
        "HF_HOME": str((folder / "cache").absolute()),
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    # The name by which lm-eval looks for a key, of whatever server; it wants one even where none is needed.
    env["OPENAI_API_KEY"] = key or "none"
    log = folder / "lm-eval.log"
    output.talk(f"bench: lm-eval asks {len(questions)} questions; its log: {log}")
    how = ""
    with log.open("wb") as file:
        try:
            # An exception ends the child as well: run() kills it on any.
            code = subprocess.run(
                argv(harness, url, model, folder.absolute(), context), env=env, cwd=folder, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, timeout=harness.timeout_s, check=False,
            ).returncode  # fmt: skip
            if code != 0:
                how = f"exit code {code}" if code > 0 else f"killed by {_signal(-code)}"
        except subprocess.TimeoutExpired:
            how = f"cut off after {harness.timeout_s:.0f} s"
        except OSError as error:
            # Not the folder's: whoever called this would take it for a full disk.
            raise NotReadyError(
                f"lm-eval's interpreter cannot be run: {error.strerror}",
                where=str(harness.python),
                next_step="give --python one that has lm-eval",
            ) from None
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
    if "No module named" in tail and "lm_eval" in tail:
        raise NotReadyError("lm-eval is not installed", where=str(harness.python), next_step=report.install_command())
    if how:
        raise FastfillError(f"lm-eval failed ({how})", where=str(log), detail=tail, next_step="read its log")
    return read(folder, questions)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read(folder: Path, questions: list[Question]) -> list[bool]:
    """Judge lm-eval's samples.

    Raises:
        FastfillError: A question is missing.
    """
    said: dict[int, str] = {}
    for file in sorted((folder / "out").rglob(f"samples_{TASK}_*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            said[int(sample["doc"]["id"])] = str(sample["resps"][0][0])
    if missing := [number for number in range(len(questions)) if number not in said]:
        raise FastfillError(
            f"{len(missing)} of {len(questions)} questions have no answer",
            where=str(folder / "out"),
            next_step=f"read {folder / 'lm-eval.log'}; then give the same command again",
        )
    return [is_right(said[number], one.answer) for number, one in enumerate(questions)]
