"""`fastfill` and `python -m fastfill`."""

from __future__ import annotations

import io
import sys
from typing import Any

import typer

from fastfill import output
from fastfill.errors import ExitCode, FastfillError, UsageError, refused

_Usage: Any = typer.BadParameter.__base__
"""The parser's own error: of click, or of typer's copy of it, by typer's release."""


def main() -> None:
    """Run the CLI; an expected failure is shown as what, where and the next step."""
    from fastfill.cli import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name or a reason may hold what the terminal's encoding does not.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(prog_name="fastfill", standalone_mode=False)
    except _Usage as error:
        _misread(error)
    except FastfillError as error:
        _fail(error)
    except BrokenPipeError:
        # Whoever reads us has left, and has not seen how it ended: no success.
        sys.exit(int(ExitCode.CHECK_FAILED))
    except OSError as error:
        _fail(refused(error))
    else:
        if code == ExitCode.INTERRUPTED:  # typer takes a Ctrl-C for itself, and says nothing
            sys.stderr.write("interrupted\n")
        sys.exit(code if isinstance(code, int) else int(ExitCode.OK))


def _misread(error: Any) -> None:
    """A command line that the parser does not take: its own words, and a document where one was asked for."""
    if _asked_for_json(sys.argv[1:]):
        asked = error.ctx.command_path if error.ctx is not None else "fastfill"
        wrong = UsageError(error.format_message(), where=asked, next_step=f"{asked} --help")
        output.document(wrong.document())
    error.show()
    sys.exit(error.exit_code)


def _fail(error: FastfillError) -> None:
    if not error.documented and _asked_for_json(sys.argv[1:]):
        output.document(error.document())
    sys.stderr.write("\n".join(error.lines()) + "\n")
    sys.exit(int(error.code))


def _asked_for_json(words: list[str]) -> bool:
    """Whether ``--json`` stands among our own options; what follows ``--`` is another program's."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


if __name__ == "__main__":
    main()
