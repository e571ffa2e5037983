"""Runs SGLang's own benchmark, again and again, in the interpreter that has SGLang: its import takes longer than a run.

A program of its own (``python loader.py``) that needs nothing of this package. Each line of stdin is a JSON list, the
arguments of one ``python -m sglang.benchmark.serving``; each line of stdout says how it ended. Its talk goes to stderr.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback


def main() -> None:
    """See the module's text."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from sglang.benchmark import serving

    # The same tokenizer for every run: reading it anew takes longer than a short run.
    serving.get_tokenizer = functools.lru_cache(maxsize=2)(serving.get_tokenizer)
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        sys.argv = ["sglang.benchmark.serving", *json.loads(line)]
        why, number = "", None
        try:
            serving.cli_main()
        except SystemExit as left:
            why = "" if left.code in (None, 0) else f"it left with {left.code}"
        except Exception as error:
            traceback.print_exc()
            why = f"{type(error).__name__}: {error}"
            number = error.errno if isinstance(error, OSError) else None
        answers.write(json.dumps({"why": why, "errno": number}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
