"""``fastfill plan``: which flags serve this traffic best, from its own trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastfill.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from fastfill.planning.assumptions import Assumptions
    from fastfill.planning.candidate import Candidate
    from fastfill.planning.deployment import Deployment
    from fastfill.planning.trace import Trace

OBJECTIVES = ("ttft_p99", "throughput", "coverage")
app = typer.Typer(invoke_without_command=True, subcommand_metavar="[calibrate|published]", no_args_is_help=True)


@app.callback(context_settings={"allow_extra_args": True})
def plan(
    context: typer.Context,
    trace: Annotated[Path | None, typer.Option("--trace", help="Mooncake JSONL, request log, benchmark JSONL.")] = None,
    workload: Annotated[str, typer.Option(help="Instead: isl=60000,osl=600,conc=16[,cached=0.3][,requests=N].")] = "",
    model: Annotated[str, typer.Option("--model", help="A checkpoint's folder, config.json, or a cached name.")] = "",
    tp: Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")] = 1,
    stack: Annotated[str, typer.Option("--stack", help="Which SGLang: one of our stacks.")] = "sglang-0.5.16",
    gpu: Annotated[str, typer.Option("--gpu", help="Whose published figures: mi350x or mi355x.")] = "mi350x",
    calibration: Annotated[
        Path | None, typer.Option(help="Measured instead: plan calibrate's file, or bench's report.json.")
    ] = None,
    objective: Annotated[str, typer.Option(help=f"One of {', '.join(OBJECTIVES)}.")] = "ttft_p99",
    candidate: Annotated[
        list[str] | None, typer.Option("--candidate", help="chunk=-1,max_prefill=65536[,radix=off][,path=on].")
    ] = None,
    assume: Annotated[list[str] | None, typer.Option("--assume", help="K=V for what the trace lacks.")] = None,
    profile: Annotated[str, typer.Option("--profile", help="The flags that stay the same.")] = "long-context",
    flag: Annotated[
        list[str] | None, typer.Option("--flag", help="An SGLang flag over the profile's: 'page-size 64'.")
    ] = None,
    write_profile: Annotated[Path | None, typer.Option(help="Write the recommendation as a profile here.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page of plots here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Replay traffic through a model of SGLang's prefill scheduler, candidate by candidate, and recommend flags.

    Example: fastfill plan --workload isl=60000,osl=600,conc=16 --model DIR --tp 4
    """
    if context.invoked_subcommand is not None:
        return
    from fastfill import output
    from fastfill.planning import document, evaluate, figures
    from fastfill.planning.assumptions import Assumptions

    if objective not in OBJECTIVES:
        raise UsageError(f"{objective} is no objective", where="--objective", next_step=", ".join(OBJECTIVES))
    if not model:
        raise UsageError(
            "the model is not known", where="--model", next_step="give --model a checkpoint's folder or its config.json"
        )
    # A long trace is replayed for minutes: what could not be written then is said now.
    for option, file in (("--html", html), ("--write-profile", write_profile)):
        _require_folder(option, file)
    assumptions = Assumptions(assume or [])
    requests = _requests(trace, workload, assumptions)
    words = [word for one in flag or [] for word in f"--{one.lstrip('-')}".split()]
    deployed = _deployed(model, tp, stack, profile, words, gpu)
    times = (
        figures.calibrated(calibration)
        if calibration
        else figures.published(deployed.model, gpu, max(tp // deployed.ranks, 1), assumptions)
    )
    tried = []
    wanted = _candidates(candidate or [], requests, deployed)
    from fastfill.planning.progress import steps

    for one in steps(wanted):
        tried.append(evaluate.try_candidate(one, deployed, requests, times, assumptions))
    chosen, why = evaluate.recommend(tried, objective)  # type: ignore[arg-type]
    answer = document.document(
        trace=requests,
        source=str(trace.name) if trace else f"--workload {workload}",
        tried=tried,
        chosen=chosen,
        why=why,
        env=dict(deployed.env),
        objective=objective,  # type: ignore[arg-type]
        assumptions=assumptions.used,
        times=times,
        release=deployed.rules.release,
        not_modelled=_not_modelled(deployed),
    )
    if html:
        from fastfill.planning import page

        page.write(html, answer, tried, chosen)
    if write_profile:
        from fastfill.planning import profile_file

        profile_file.write(answer, profile, write_profile)
    if json:
        output.document(answer.model_dump(by_alias=True))
    else:
        from fastfill.planning import text

        text.show(answer)
    if chosen is None:
        raise typer.Exit(int(ExitCode.CHECK_FAILED))


def _require_folder(option: str, file: Path | None) -> None:
    if file is not None and not file.absolute().parent.is_dir():
        raise UsageError(
            "there is no such folder to write to", where=str(file), next_step=f"give {option} a file in one that is"
        )


def _requests(file: Path | None, workload: str, assumptions: Assumptions) -> Trace:
    if (file is None) == (not workload):
        raise UsageError(
            "there is nothing to replay" if file is None else "there are two kinds of traffic",
            where="--trace, --workload",
            next_step="give one of --trace FILE and --workload isl=60000,osl=600,conc=16",
        )
    if file is None:
        from fastfill.planning import workload as loads

        return loads.parse(workload)
    from fastfill.planning import readers

    unit = assumptions.text("time_unit", ("ms", "s"))
    trace = readers.read(file, block=int(assumptions.number("hash_block")), unit=unit)
    if not trace.format.startswith("Mooncake"):
        del assumptions.used["time_unit"]
    if not trace.block:
        assumptions.used.pop("hash_block", None)
    return trace


def _deployed(model: str, tp: int, stack: str, profile: str, words: list[str], gpu: str) -> Deployment:
    from fastfill.planning import deployment, figures
    from fastfill.serving.profile import load

    kept: dict[str, Any] = {"tp": tp, "stack": stack, "words": words, "gpu_gib": figures.gpu(gpu)["memory_gib"]}
    return deployment.read_deployment(model, profile=load(profile), **kept)


def _candidates(given: list[str], trace: Trace, deployed: Deployment) -> list[Candidate]:
    from fastfill.planning.candidate import grid, parse

    longest = max(trace.n_in)
    if given:
        found = [parse(one, longest=longest, radix=bool(trace.block), page=deployed.page) for one in given]
    else:
        found = grid(longest, radix=(False, True) if trace.block else (False,), page=deployed.page)
    return list(dict.fromkeys(found))


def _not_modelled(deployed: Deployment) -> list[str]:
    found = []
    if deployed.facts.launch.speculative:
        found.append("speculative decoding: decode is taken to give one token a step")
    if deployed.model.hybrid:
        found.append("how many linear-attention states the cache holds: none is evicted for want of a slot")
    if deployed.ranks > 1:
        found.append("data-parallel ranks other than in turn")
    return found


@app.command("calibrate")
def calibrate(
    url: Annotated[str, typer.Option("--url", help="The server itself, with nothing else to do.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write the constants here, for --calibration.")] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="File with its API key; or FASTFILL_API_KEY.")] = None,
) -> None:
    """Measure the time model's constants on a live server with a handful of prompts; prints the document.

    Example: fastfill plan calibrate --url http://127.0.0.1:30000 --out constants.json
    """
    import json

    from fastfill import output
    from fastfill.planning.calibrate import Calibration
    from fastfill.proof.address import api_key, base_url
    from fastfill.proof.server import Server
    from fastfill.proof.transport import Transport

    _require_folder("--out", out)
    with Transport(base_url(url), key=api_key(api_key_file)) as transport:
        found = Calibration(Server(transport), lambda what: output.talk(f"calibrate: {what}")).run()
    if out is not None:
        try:
            out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            # They took a while to measure.
            output.document(found)
            raise UsageError(
                f"the constants cannot be written: {error.strerror}",
                where=str(out),
                next_step="keep what was printed as that file",
            ) from None
    output.document(found)


@app.command("published")
def published(
    stack: Annotated[str, typer.Option("--stack", help="Which SGLang's scheduling.")] = "sglang-0.5.16",
    assume: Annotated[list[str] | None, typer.Option("--assume", help="K=V, as for plan.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show published runs beside the model's answer for them. The model is not fitted to them.

    Example: fastfill plan published --assume linear_share=0.2
    """
    from fastfill import output
    from fastfill.explaining.releases import stack as find
    from fastfill.planning import published as cells
    from fastfill.planning.assumptions import Assumptions

    assumptions = Assumptions(assume or [])
    constants = cells.times(assumptions)
    rows = cells.beside(find(stack).sglang, constants)
    if json:
        output.document(
            {
                "schema": "fastfill.plan_published/1",
                "cells": [{**row._asdict(), "agrees": row.agrees} for row in rows],
                "assumptions": assumptions.used,
                "time_model": constants.source,
            }
        )
        return
    output.data("on over off: published beside modelled; two things differ between the runs, the path and the chunk")
    for row in rows:
        difference = row.modelled / row.published - 1
        verdict = "agree" if row.agrees else "DISAGREE"
        figures = f"{row.published:>6.3f} {row.modelled:>7.3f} {difference:>+7.1%}"
        output.data(f"  {row.workload:<32} {row.what:<11} {figures}  {verdict}")
    output.data("assumed: " + ", ".join(f"{name}={value}" for name, value in assumptions.used.items()))
    output.data(f"times: {constants.source}")
