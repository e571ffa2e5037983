"""SGLang's own request log (``--log-requests``), as text or JSON: one line when a request comes, one when it ends.

Only lengths, times and sampling settings are taken from a line. Read in 0.5.16 srt/utils/request_logger.py.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from fastfill.planning.trace import UNKNOWN, Trace

if TYPE_CHECKING:
    from fastfill.planning.readers import Lines

_STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)")
_FINISH = "Finish: obj="
_RECEIVE = "Receive: obj="
_NUMBER = {
    name: re.compile(rf"'{name}': (-?[\d.]+(?:e-?\d+)?)")
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency", "request_received_ts")
}
_MAX_NEW = re.compile(r"'max_new_tokens': (\d+)")
_IGNORE = re.compile(r"'ignore_eos': (True|False)")
_RID = re.compile(r"\brid='([^']*)'")


class _Ended(NamedTuple):
    rid: str
    at: float
    n_in: int
    n_out: int
    cached: int
    max_new: int
    ignore_eos: int


def recognises(line: str) -> bool:
    """Whether a line is of such a log."""
    return _FINISH in line or _RECEIVE in line or ('"event"' in line and '"request.' in line)


def read(lines: Lines) -> Trace:
    """The finished requests of a log, at the times at which they came."""
    trace = Trace("SGLang's request log", ["prefix hashes"])
    received: dict[str, float] = {}
    rows: list[_Ended] = []
    from fastfill.planning.readers import CUT

    others = unanswered = coarse = 0
    for text in lines:
        try:
            ended = _line(text, received)
        except (ValueError, KeyError, TypeError) as error:
            lines.drop(f"a request's line cannot be read: {type(error).__name__}: {error!s:.60}")
            continue
        if ended is None:
            others += not recognises(text)
        elif ended.n_in < 1 or ended.n_out < 1:
            unanswered += 1
        else:
            rows.append(ended)
            coarse += ended.at == int(ended.at)
    for row in sorted(rows, key=lambda row: row.at):
        trace.add(row.at, row.n_in, row.n_out, row.max_new, row.ignore_eos)
    if any(row.max_new == UNKNOWN for row in rows):
        trace.lacks.append("client's max_new_tokens (it is logged from --log-requests-level 1 on)")
    if any(row.ignore_eos == UNKNOWN for row in rows):
        trace.lacks.append("whether clients set ignore_eos")
    if rows and coarse == len(rows):
        trace.lacks.append("arrival times finer than a second")
    if unanswered:
        trace.repairs.append(f"{unanswered} requests without an answer are left out")
    if others:
        trace.repairs.append(f"{others} lines that are about no request are left out")
    if lines.dropped:
        trace.repairs.append(f"line {lines.dropped}: {CUT}")
    return trace


def _line(text: str, received: dict[str, float]) -> _Ended | None:
    if '"event"' in text and "{" in text:
        return _json(json.loads(text[text.index("{") :]), received)
    if _RECEIVE in text:
        rid, stamp = _RID.search(text), _time(text)
        if rid and stamp is not None:
            received[rid[1]] = stamp
        return None
    if _FINISH not in text:
        return None
    found: dict[str, float] = {}
    at = text.rindex("'meta_info':")
    meta, settings = text[at:], text[max(text.rfind("sampling_params=", 0, at), 0) : at]
    for name, pattern in _NUMBER.items():
        match = pattern.search(meta)
        if match:
            found[name] = float(match[1])
    rid = _RID.search(text)
    max_new, ignore = _MAX_NEW.search(settings), _IGNORE.search(settings)
    sampled = settings.startswith("sampling_params=")
    return _ended(
        rid[1] if rid else "",
        found,
        _time(text),
        received,
        int(max_new[1]) if max_new else UNKNOWN,
        int(ignore[1] == "True") if ignore else 0 if sampled else UNKNOWN,
    )


def _json(document: dict[str, Any], received: dict[str, float]) -> _Ended | None:
    event, rid = document.get("event"), str(document.get("rid"))
    stamp = _time(str(document.get("timestamp", "")))
    if event == "request.received" and stamp is not None:
        received[rid] = stamp
    if event != "request.finished":
        return None
    meta = document["out"]["meta_info"]
    sampling = document.get("obj", {}).get("sampling_params")
    asked = sampling.get("max_new_tokens") if isinstance(sampling, dict) else None
    ignore = int(bool(sampling.get("ignore_eos"))) if isinstance(sampling, dict) else UNKNOWN
    found = {name: float(meta[name]) for name in _NUMBER if isinstance(meta.get(name), int | float)}
    return _ended(rid, found, stamp, received, asked if isinstance(asked, int) else UNKNOWN, ignore)


def _ended(
    rid: str, meta: dict[str, float], stamp: float | None, received: dict[str, float], max_new: int, ignore: int
) -> _Ended:
    """A request's end; it came when the server says, else when its first line was written, else so long before."""
    came = received.pop(rid, None)
    at = meta.get("request_received_ts") or came
    if at is None:
        if stamp is None:
            raise ValueError("the line has no time")
        at = stamp - meta.get("e2e_latency", 0.0)
    n_in, n_out = int(meta["prompt_tokens"]), int(meta["completion_tokens"])
    return _Ended(rid, at, n_in, n_out, int(meta.get("cached_tokens", 0)), max_new, ignore)


def _time(text: str) -> float | None:
    match = _STAMP.search(text[:80])
    if match is None:
        return None
    return datetime.fromisoformat(match[1].replace(",", ".")).timestamp()
