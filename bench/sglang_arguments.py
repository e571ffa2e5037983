"""The names of a SGLang release's command-line arguments, read from its own parser.

    fastfill lab python --stack sglang-0.5.16-unpatched -- bench/sglang_arguments.py [--out FOLDER]

One argument a line, with every spelling that the parser takes, in alphabetical order. ``--out`` writes the release's
file there (launch/fastfill/serving/arguments, which flags are checked against); else they are printed. tests/lab holds
the files to the releases that the lab runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def lines() -> list[str]:
    """One argument a line, its spellings separated by spaces."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    long = (sorted(one for one in action.option_strings if one.startswith("--")) for action in parser._actions)
    return sorted(" ".join(spellings) for spellings in long if spellings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the file of this release here")
    arguments = parser.parse_args()
    text = "\n".join(lines()) + "\n"
    if arguments.out is None:
        print(text, end="")
        return
    import sglang

    (arguments.out / f"{sglang.__version__}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
