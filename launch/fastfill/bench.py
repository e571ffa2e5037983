"""``fastfill bench``: does the path pay here? Paired runs, an accuracy gate, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastfill import output
from fastfill.errors import ExitCode

app = typer.Typer(
    help="Does the fast path pay here, and what does it cost in accuracy?", no_args_is_help=True, rich_markup_mode=None
)
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": False}
Out = Annotated[Path, typer.Option(help="Folder of this benchmark; given again, it is gone on with.")]
Url = Annotated[
    str | None, typer.Option(envvar="FASTFILL_URL", help="A server that is up: http(s)://HOST:PORT, no router.")
]
Key = Annotated[Path | None, typer.Option("--api-key-file", help="File with the API key; or set FASTFILL_API_KEY.")]
Admin = Annotated[Path | None, typer.Option("--admin-api-key-file", help="File with the admin key, if it has one.")]
Python = Annotated[
    Path | None, typer.Option(help="Interpreter that has SGLang [this one where it has it, else the lab's].")
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as one JSON document.")]


@app.command(context_settings=_PASS_ON)
def ab(
    ctx: typer.Context,
    a: Annotated[str, typer.Option(help="Profile of arm A, which is compared with.")],
    b: Annotated[str, typer.Option(help="Profile of arm B; the same as A for an A/A.")],
    grid: Annotated[str, typer.Option(help='"isl=8192,60000 osl=1024,600 conc=4,16 [prompts=N]", or a file of lines.')],
    out: Out = Path("fastfill-bench"),
    blocks: Annotated[int, typer.Option(min=3, help="Blocks of A B B A, for each cell.")] = 6,
    noise: Annotated[
        int | None, typer.Option(min=0, help="Blocks of A against itself [half of --blocks].", show_default=False)
    ] = None,
    metric: Annotated[str, typer.Option(help="The one metric that decides, by SGLang's name.")] = "median_ttft_ms",
    switch: Annotated[
        str | None, typer.Option(help="path or restart [path where only the flag differs].", show_default=False)
    ] = None,
    label: Annotated[str, typer.Option(help="A name for arms that differ in several things.")] = "",
    url: Url = None,
    api_key_file: Key = None,
    admin_api_key_file: Admin = None,
    python: Python = None,
    tokenizer: Annotated[str | None, typer.Option(help="Folder or name [the server's model].")] = None,
    model: Annotated[str | None, typer.Option(help="Without --url: start the servers here, with this model.")] = None,
    lab: Annotated[str | None, typer.Option(help="Without --url: start them in the lab, with this model.")] = None,
    tp: Annotated[int, typer.Option(min=1, help="Without --url: GPUs.")] = 1,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Without --url: where to serve.")] = 30000,
    longest_prompt: Annotated[int | None, typer.Option(min=1, help="Without --url: see fastfill serve.")] = None,
    run_timeout: Annotated[float, typer.Option(min=1, help="Seconds that one run may take.")] = 3600.0,
    probe_tokens: Annotated[int | None, typer.Option(min=2, help="Length of the proofs' prompts.")] = None,
    json: Json = False,
) -> None:
    """Compare two profiles, run after run in turn, on one host; every arm proven. Words after -- go to SGLang.

    Exit 0: done, every cell has a verdict; 1: a cell is void; 2: usage; 4: it stopped before the end.

    Example: fastfill bench ab --a off --b long-context --grid "isl=8192 osl=1024 conc=4,16" --url http://localhost:30000
    """
    from fastfill.benchmark import setup

    url = _url(ctx, url, model or lab)
    _heard(ctx, up=bool(url) and not (model or lab), lab=bool(lab))
    wish = setup.Wish(
        a=a, b=b, grid=grid, blocks=blocks, noise=blocks // 2 if noise is None else noise, metric=metric,
        switch=switch, label=label, url=url, model=model, lab=lab, tp=tp, port=port,
        longest_prompt=longest_prompt, tokenizer=tokenizer, extra=tuple(ctx.args),
    )  # fmt: skip
    job = setup.settle(wish)
    access = setup.access(api_key_file, admin_api_key_file)
    stopped = setup.execute(
        job, out, python=python, access=access, run_timeout_s=run_timeout, probe_tokens=probe_tokens
    )
    void = _report(out, json)
    if stopped:
        output.talk(f"bench: stopped: {stopped}; give the same command again to go on")
        raise typer.Exit(int(ExitCode.NOT_READY))
    raise typer.Exit(int(ExitCode.CHECK_FAILED if void else ExitCode.OK))


@app.command(context_settings=_PASS_ON)
def accuracy(
    ctx: typer.Context,
    out: Out = Path("fastfill-accuracy"),
    data: Annotated[
        Path | None, typer.Option(help="JSON Lines with question and answer [48 shipped ones: too few to pass].")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first questions.")] = None,
    margin: Annotated[float, typer.Option(min=0.001, max=0.5, help="Share of questions that may be lost.")] = 0.02,
    url: Url = None,
    bf16_url: Annotated[str | None, typer.Option(help="A server of the same model with profile bf16-kv.")] = None,
    api_key_file: Key = None,
    admin_api_key_file: Admin = None,
    model: Annotated[str | None, typer.Option(help="Without --url: start the servers here, with this model.")] = None,
    lab: Annotated[str | None, typer.Option(help="Without --url: start them in the lab, with this model.")] = None,
    tp: Annotated[int, typer.Option(min=1, help="Without --url: GPUs.")] = 1,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Without --url: where to serve.")] = 30000,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter that has lm-eval [this one, else the lab's].")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Folder or name [the server's model].")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Questions under way at once.")] = 8,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Tokens that an answer may have.")] = 256,
    probe_tokens: Annotated[int | None, typer.Option(min=2, help="Length of the proofs' prompts.")] = None,
    json: Json = False,
) -> None:
    """Ask the same questions of fp8 KV on the fast path, fp8 KV on the fallback, and bf16 KV; compare the answers.

    Exit 0: pass, no drop beyond the margin; 1: fail; 3: inconclusive, too few questions for one.

    Example: fastfill bench accuracy --url http://localhost:30000 --bf16-url http://localhost:30001 --data gsm8k.jsonl
    """
    from fastfill.benchmark import answering, setup

    url = _url(ctx, url, model or lab)
    _heard(ctx, up=bool(url) and not (model or lab), lab=bool(lab))
    document = answering.execute(
        answering.Wish(
            out=out,
            data=data,
            limit=limit,
            margin=margin,
            url=url,
            bf16_url=bf16_url,
            model=model,
            lab=lab,
            tp=tp,
            port=port,
            extra=tuple(ctx.args),
            python=python,
            tokenizer=tokenizer,
            concurrency=concurrency,
            answer_tokens=answer_tokens,
            probe_tokens=probe_tokens,
        ),
        setup.access(api_key_file, admin_api_key_file),
    )
    if json:
        output.document(document)
    else:
        for line in answering.lines(document):
            output.data(line)
    codes = {"pass": ExitCode.OK, "fail": ExitCode.CHECK_FAILED, "inconclusive": ExitCode.INCONCLUSIVE}
    raise typer.Exit(int(codes[document["verdict"]]))


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="The folder of a benchmark.")], json: Json = False) -> None:
    """Write report.html, report.md and report.json anew from what a benchmark has measured so far."""
    _report(folder, json)


def _url(ctx: typer.Context, url: str | None, started: str | None) -> str | None:
    """The URL that is meant: one that only the environment names gives way to a server that is to be started here."""
    source = ctx.get_parameter_source("url")
    return None if started and source is not None and source.name == "ENVIRONMENT" else url


def _heard(ctx: typer.Context, *, up: bool, lab: bool) -> None:
    """Refuse options for a server that is started here where it is up already, or is the lab's."""
    from fastfill.unheard import Rule, given, refuse

    started, why = "leave it out, or give --model instead of --url", "the server at --url is up already"
    rules = [Rule(name, up, why, started) for name in ("--tp", "--port", "--longest-prompt")]
    rules.append(Rule("--longest-prompt", lab, "the lab's models are tiny", "leave it out"))
    refuse(given(ctx), rules)


def _report(folder: Path, as_json: bool) -> bool:
    """Write and print; returns whether a cell is void."""
    from fastfill.benchmark.report import summary, write

    document = write(folder)
    if as_json:
        output.document(document.model_dump(mode="json", by_alias=True))
    else:
        output.data(summary(document))
    output.talk(f"bench: {folder / 'report.html'}, {folder / 'report.md'}, {folder / 'report.json'}")
    return any(cell.verdict == "void" for cell in document.cells)
