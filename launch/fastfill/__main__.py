"""`fastfill` and `python -m fastfill`."""

from __future__ import annotations

import sys

from fastfill.errors import ExitCode, FastfillError


def main() -> None:
    """Run the CLI; an expected failure is shown as what, where and the next step."""
    from fastfill.cli import app

    try:
        app(prog_name="fastfill")
    except FastfillError as error:
        sys.stderr.write("\n".join(error.lines()) + "\n")
        sys.exit(int(error.code))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(int(ExitCode.OK))


if __name__ == "__main__":
    main()
