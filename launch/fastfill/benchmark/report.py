"""Writes a benchmark's report: one HTML file that needs nothing else, Markdown, and JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fastfill.benchmark import journal as journals
from fastfill.benchmark.analyse import analyse
from fastfill.benchmark.document import BenchDocument, EstimatePart
from fastfill.benchmark.journal import PLAN, digest, unwritable
from fastfill.errors import NotReadyError, UsageError

_TEMPLATES = Path(__file__).with_name("templates")
_SHOWN = ("median_ttft_ms", "median_itl_ms", "median_e2e_latency_ms", "total_throughput")
_SECTIONS = (
    ("Ratio by cell", "ratio"),
    ("Time to first token", "ttft"),
    ("Coverage", "coverage"),
    ("Timeline", "timeline"),
)


def read(folder: Path) -> BenchDocument:
    """The document of a folder, finished or not.

    Raises:
        UsageError: No benchmark is there.
        NotReadyError: scipy is missing.
    """
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no benchmark is there: {error}", where=str(folder), next_step="give the folder of fastfill bench ab"
        ) from None
    events = journals.read(folder)
    changed = sorted(
        event["file"]
        for event in events
        if event["event"] == "run" and event.get("sha256") and digest(folder / event["file"]) != event["sha256"]
    )
    needed("scipy")
    return analyse(plan, events, changed=changed, stack=_stack(events))


def write(folder: Path) -> BenchDocument:
    """Write ``report.html``, ``report.md`` and ``report.json`` into the folder.

    Raises:
        UsageError: No benchmark is there.
        NotReadyError: scipy or matplotlib is missing, or the folder cannot be written.
    """
    document = read(folder)
    texts = {"report.json": json.dumps(document.model_dump(mode="json", by_alias=True), indent=1) + "\n"}
    texts["report.md"] = markdown(document)
    needed("matplotlib")
    texts["report.html"] = html(document)
    for name, text in texts.items():
        part = folder / f".{name}.part"
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(folder / name)
        except OSError as error:
            raise unwritable(error, folder / name) from error
    return document


def html(document: BenchDocument) -> str:
    """The page, with its plots inside."""
    from fastfill.benchmark import plots

    return _render("report.html.j2", document, plots=plots.all_of(document), sections=_SECTIONS)


def markdown(document: BenchDocument) -> str:
    """The same without plots."""
    return _render("report.md.j2", document)


def summary(document: BenchDocument) -> str:
    """One line a cell."""
    width = max(len(cell.name) for cell in document.cells)
    return "\n".join(
        f"{cell.name:<{width}}  {cell.verdict:<19}  {_ratio(cell.ratio):<24}  {cell.why}" for cell in document.cells
    )


def needed(package: str, then: str = "fastfill bench report FOLDER: what was measured is kept") -> None:
    """Refuse to go on without a package of the extra.

    Args:
        package: Its module.
        then: What to do once it is there.

    Raises:
        NotReadyError: It is not installed.
    """
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise NotReadyError(
            f"the package {package} is not installed",
            where=sys.executable,
            next_step=f"{install_command()}; then {then}",
        )


def install_command() -> str:
    """What installs the extra ``bench`` from its lock; not beside SGLang, which wants other versions."""
    from fastfill import data

    lock = data.requirements() / "bench.txt"
    return f"pip install --require-hashes --no-deps -r {lock}, in an environment without SGLang"


def _render(name: str, document: BenchDocument, **more: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(
        d=document, p=document.provenance, provenance=_provenance(document), metrics=_SHOWN, ratio=_ratio,
        plain=_plain, number=_number, share=_share, **more,
    )  # fmt: skip


def _provenance(document: BenchDocument) -> list[tuple[str, str]]:
    p = document.provenance
    same = "nothing: this is an A/A, which can only find noise"
    switch = {"path": "the kill switch, without a restart", "restart": "a restart of the server"}[p.switch]
    return [
        ("arms differ in", "; ".join(p.differences) or same),
        ("arms change by", switch),
        ("primary metric, named beforehand", p.metric),
        ("blocks", f"{p.blocks} of A B B A, {p.noise} of A A A A, for each cell"),
        ("dates", f"{p.began} to {p.ended}"),
        ("server", f"{p.server}; SGLang {p.sglang or 'not known'}, {p.model or 'model not known'}, tp {p.tp_size}"),
        ("client's host", f"{p.client}, load {p.load}"),
        ("stack", p.stack),
        ("kernel", p.kernel),
        ("GPU", p.gpu),
        ("fastfill", p.fastfill),
    ]


def _stack(events: list[dict[str, Any]]) -> str:
    """The stack file for the server's SGLang, by its digest."""
    from fastfill.pinning import stack

    for event in reversed(events):
        server = event["document"].get("server") if event["event"] == "proof" else None
        if server and server.get("sglang"):
            name = f"sglang-{server['sglang']}"
            try:
                return f"{name}, digest {stack.load(name).digest()}"
            except UsageError:
                return f"no stack file for SGLang {server['sglang']}"
    return "not known"


def _ratio(one: EstimatePart | None) -> str:
    return "-" if one is None else f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"


def _plain(one: EstimatePart | None) -> str:
    return "-" if one is None else f"{one.value:+.1f} [{one.low:+.1f}, {one.high:+.1f}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
