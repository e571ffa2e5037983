"""``fastfill pins``: the stack file, what is derived from it, and whether what runs is what it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastfill import output
from fastfill.errors import ExitCode, FastfillError, UsageError

if TYPE_CHECKING:
    from fastfill.pinning.compare import Line
    from fastfill.pinning.live import Live

app = typer.Typer(
    help="The stack file: show it, write what is derived from it, compare it with what runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_DEFAULT = "sglang-0.5.16"
Stack = Annotated[str, typer.Option("--stack", help="A stack by name, or the path of a file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def show(stack: Stack = _DEFAULT, json: Json = False) -> None:
    """Print every pinned value, with why it is so and where that was read."""
    from fastfill.pinning import stack as stacks

    chosen = stacks.load(stack)
    values = dict(chosen.values())
    if json:
        document = {"schema": "fastfill.pins/1", "image": chosen.image, "digest": chosen.digest(), "values": values}
        output.document({**document, "reasons": [reason._asdict() for reason in stacks.reasons(chosen)]})
        return
    output.data(f"{chosen.name}  (digest {chosen.digest()[:12]}, image {chosen.image})")
    for reason in stacks.reasons(chosen):
        output.data(f"\n{reason.table}")
        for name, value in values.items():
            inner = any(
                other.table != reason.table
                and name.startswith(f"{other.table}.")
                and other.table.startswith(reason.table)
                for other in stacks.reasons(chosen)
            )
            if name.startswith(f"{reason.table}.") and not inner:
                shown = " ".join(value) if isinstance(value, (list, tuple)) else value
                mark = "  UNVERIFIED" if name in chosen.unverified else ""
                output.data(f"  {name.removeprefix(reason.table + '.')}: {shown or '(not resolved)'}{mark}")
        output.data(f"  why: {reason.why}")
        output.data(f"  source: {reason.source}")


@app.command()
def render(
    stack: Stack = _DEFAULT,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a file is stale.")] = False,
) -> None:
    """Write the stack's values where bake and compose read them."""
    from fastfill.pinning import render as rendering

    root = _checkout()
    outputs = rendering.outputs(root, stack)
    stale = [path for path, text in outputs.items() if path.read_text(encoding="utf-8") != text]
    names = [str(path.relative_to(root)) if path.is_relative_to(root) else str(path) for path in stale]
    if check and stale:
        raise FastfillError("the stack's values are stale", where=", ".join(names), next_step="fastfill pins render")
    for path in stale:
        path.write_text(outputs[path], encoding="utf-8")
    output.talk(f"pins: wrote {', '.join(names)}" if stale else "pins: up to date")


@app.command()
def verify(
    context: typer.Context,
    stack: Stack = _DEFAULT,
    url: Annotated[str | None, typer.Option(help="Also a running server.", show_default=False)] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="The server's key.", show_default=False)] = None,
    profile: Annotated[
        str | None, typer.Option(help="The profile that the server should run.", show_default=False)
    ] = None,
    container: Annotated[
        str | None, typer.Option(help="Look inside this running container instead of here.", show_default=False)
    ] = None,
    aiter: Annotated[Path | None, typer.Option(help="Look at this aiter checkout alone.", show_default=False)] = None,
    report: Annotated[bool, typer.Option("--report", help="Exit 0 whatever is found.")] = False,
    json: Json = False,
) -> None:
    """Compare the stack with what is installed or runs, field by field. Exit 1 on any difference.

    With --url alone the server is compared; with --container its files and labels; else this interpreter's packages.
    """
    from fastfill.pinning import compare, live
    from fastfill.pinning import stack as stacks
    from fastfill.unheard import Rule, given, refuse

    alone = "--aiter looks at a checkout alone"
    rules = [
        Rule(name, url is None, "no server is asked", "give --url too") for name in ("--profile", "--api-key-file")
    ]
    refuse(given(context), [*rules, Rule("--container", aiter is not None, alone, "give one of the two")])
    chosen = stacks.load(stack)
    wanted = compare.intended(chosen)
    found: Live = {}
    looked_at = []
    if aiter is not None:
        found |= live.of_aiter(chosen, aiter)
        looked_at.append(str(aiter))
    elif container is not None:
        wanted["stack"] = chosen.digest()
        found |= live.of_container(container)
        looked_at.append(f"container {container}")
    elif url is None:
        found |= live.of_installation(chosen)
        looked_at.append("this interpreter")
    if url is not None:
        there, info, ranks = live.of_server(url, api_key_file)
        found |= there
        looked_at.append(url)
        _add_server(wanted, found, info, ranks, profile)
    lines, missing = compare.compare(wanted, found)
    if json:
        document = compare.VerifyDocument(
            stack=chosen.name, looked_at=" and ".join(looked_at), fields=lines, not_looked_at=missing
        )
        output.document(document.model_dump(mode="json", by_alias=True))
    else:
        _say(lines, missing, " and ".join(looked_at))
    if not report and not all(line.ok for line in lines):
        raise typer.Exit(int(ExitCode.CHECK_FAILED))


@app.command()
def resolve(
    stack: Stack = _DEFAULT,
    again: Annotated[bool, typer.Option("--again", help="Also what is filled in already.")] = False,
) -> None:
    """Look up what the stack leaves unverified (the base image's digest), write it there, and render."""
    from fastfill.pinning import resolve as resolving
    from fastfill.pinning import stack as stacks

    _checkout()
    chosen = stacks.load(stack)
    known = [lookup.field for lookup in resolving.lookups(chosen)]
    wanted = [field for field in known if again or field in chosen.unverified]
    if not wanted:
        output.talk("pins: nothing is unverified")
        return
    path = stacks.path_of(stack)
    # One at a time: what was found stays, whatever the next look-up does.
    for field in wanted:
        text, found = resolving.resolve(path.read_text(encoding="utf-8"), stacks.load(stack), [field])
        path.write_text(text, encoding="utf-8")
        output.talk(f"pins: {field} = {found[field]}")
    render(stack)


@app.command()
def fit(
    sglang: Annotated[Path, typer.Option(help="The folder that holds the package sglang (an unpacked wheel).")],
    aiter: Annotated[Path, typer.Option(help="A clone of aiter; the pinned commit is read from it.")],
    stack: Stack = _DEFAULT,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if the kept result differs.")] = False,
) -> None:
    """Check that aiter has every name SGLang takes from it, and takes its calls; keep the result beside the stack.

    Reads the two source trees; nothing is imported. Exit 1 if a name is missing or a call does not fit.
    """
    from fastfill.pinning import fitting

    document = fitting.judge(stack, sglang, aiter)
    kept = fitting.path_of(stack)
    if check and (not kept.is_file() or kept.read_text(encoding="utf-8") != fitting.text(document)):
        raise FastfillError("the kept result is stale", where=str(kept), next_step="fastfill pins fit, without --check")
    if not check:
        kept.write_text(fitting.text(document), encoding="utf-8")
    bad = fitting.problems(document)
    for name in bad:
        output.data(f"{name.status}: {name.name} ({', '.join(name.places)}): {name.detail}")
    calls = sum(name.calls for name in document.names)
    accepted = sum(name.status in ("misfit", "missing") for name in document.names) - len(bad)
    listed = f", {accepted} more that the stack lists with a reason" if accepted else ""
    output.data(f"{len(document.names)} names, {calls} calls, {len(bad)} that do not fit{listed}: {kept}")
    if bad:
        raise typer.Exit(int(ExitCode.CHECK_FAILED))


def _checkout() -> Path:
    from fastfill import data

    root = data.checkout()
    if root is None:
        raise UsageError(
            "fastfill was installed from a wheel: there is nothing to write to",
            where=str(Path(__file__).parent),
            next_step="run it from a checkout, installed with pip install -e .",
        )
    return root


def _add_server(
    wanted: dict[str, Any],
    found: Live,
    info: dict[str, Any],
    ranks: list[dict[str, Any]],
    profile: str | None,
) -> None:
    from fastfill.pinning import live

    if profile is not None:
        from fastfill.serving.profile import load
        from sglang_fastfill.conditions import FLAG
        from sglang_fastfill.state import truthy

        chosen = load(profile)
        wanted |= {f"flag.{name}": value for name, value in chosen.flags.items()}
        found |= live.flags(info, chosen.flags)
        wanted[f"env.{FLAG}"] = truthy(chosen.env.get(FLAG))
        if ranks:
            found[f"env.{FLAG}"] = str(all(rank["flag"] for rank in ranks))
    if ranks:
        wanted["patched"] = True
        found["patched"] = str(all(rank["patched"] for rank in ranks))


def _say(lines: list[Line], missing: list[str], looked_at: str) -> None:
    width = max((len(line.name) for line in lines), default=0)
    for line in lines:
        output.data(f"{'ok  ' if line.ok else 'FAIL'}  {line.name:<{width}}  {line.intended}")
        if not line.ok:
            output.data(f"      {'live':<{width}}  {'(not there)' if line.live is None else line.live}")
    for name in missing:
        output.data(f"-     {name:<{width}}  not looked at")
    wrong = sum(not line.ok for line in lines)
    output.data(f"{looked_at}: {len(lines) - wrong} of {len(lines)} fields as pinned")
