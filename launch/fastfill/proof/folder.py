"""The evidence folder: what a proof saw, in files that anybody can read, and from which it can be judged again.

    manifest.json                       SHA-256 and size of each other file
    evidence.json                       what was read and sent, without what the next files hold
    counters-before.txt, -after.txt     our counters, in the Prometheus text format
    log.json                            aiter's lines in the server's log
    traces/*.trace.json.gz              the attention kernels of each rank's trace
    requests.jsonl                      the requests, with their token ids
    server_info.json                    SGLang's settings, without keys
    stack.json                          which stack of this repository it is, and the kernel files' hashes
    verdict.json                        the document of `fastfill prove --json`

Nothing in it is a key, or a request that was not the proof's own.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from pathlib import Path, PurePath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fastfill import __version__
from fastfill.errors import FastfillError, UsageError
from fastfill.proof import counters, traces
from fastfill.proof.evidence import Evidence
from fastfill.proof.loglines import LogEvidence

MANIFEST = "manifest.json"
_EVIDENCE, _LOG, _TRACES, _VERDICT = "evidence.json", "log.json", "traces", "verdict.json"
_COUNTERS = {"counters_before": "counters-before.txt", "counters_after": "counters-after.txt"}


class Entry(BaseModel):
    """One file of the folder."""

    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)


class Manifest(BaseModel):
    """What the folder must hold, nothing more and nothing less."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_name: Literal["fastfill.evidence/1"] = Field(default="fastfill.evidence/1", alias="schema")
    fastfill: str
    files: dict[str, Entry]


def prepare(place: Path) -> None:
    """Make the folder, before anything is sent.

    Raises:
        UsageError: It holds something already, or cannot be made.
    """
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = any(place.iterdir())
    except OSError as error:
        raise UsageError(
            f"the evidence folder cannot be made: {error.strerror}", where=str(place), next_step="give another folder"
        ) from error
    if taken:
        raise UsageError(
            "the evidence folder holds something already", where=str(place), next_step="give a folder that is empty"
        )


def write(
    place: Path,
    evidence: Evidence,
    document: dict[str, Any],
    *,
    requests: list[dict[str, Any]],
    server_info: dict[str, Any],
    stack: dict[str, Any],
) -> str:
    """Write the evidence and seal it.

    Args:
        place: A folder of :func:`prepare`.
        evidence: What the verdict was made from.
        document: The verdict.
        requests: The bodies that were sent.
        server_info: SGLang's settings, secrets already taken out.
        stack: What identifies the software.

    Returns:
        The SHA-256 of the manifest: who notes it down knows the whole folder.

    Raises:
        FastfillError: The disk is full, or the folder was taken away.
    """
    rest = evidence
    try:
        for name, file in _COUNTERS.items():
            reading = getattr(evidence, name)
            if reading is not None:
                _text(place / file, reading.exposition())
                rest = rest.model_copy(update={name: None})
        if evidence.log is not None:
            _json(place / _LOG, evidence.log.model_dump(mode="json"))
            rest = rest.model_copy(update={"log": None})
        if evidence.trace is not None:
            (place / _TRACES).mkdir(exist_ok=True)
            for one in evidence.trace.ranks:
                (place / _TRACES / one.file).write_bytes(traces.reduced(one))
            bare = tuple(one.model_copy(update={"runs": ()}) for one in evidence.trace.ranks)
            rest = rest.model_copy(update={"trace": evidence.trace.model_copy(update={"ranks": bare})})
        _json(place / _EVIDENCE, rest.model_dump(mode="json", by_alias=True))
        _text(place / "requests.jsonl", "".join(json.dumps(body) + "\n" for body in requests))
        _json(place / "server_info.json", server_info)
        _json(place / "stack.json", stack)
        _json(place / _VERDICT, document)
        return seal(place)
    except OSError as error:
        raise FastfillError(
            f"the evidence could not be written: {error.strerror}",
            where=str(place),
            next_step="free disk space, and give an empty folder",
        ) from error


def seal(place: Path) -> str:
    """Write the manifest of what the folder holds now; returns its SHA-256."""
    entries = {name: _entry(place / name) for name in _names(place)}
    files = {name: entry for name, entry in entries.items() if entry is not None}
    text = Manifest(fastfill=__version__, files=files).model_dump_json(by_alias=True, indent=1) + "\n"
    _text(place / MANIFEST, text)
    return hashlib.sha256(text.encode()).hexdigest()


def digest(place: Path) -> str:
    """The SHA-256 of the manifest."""
    return hashlib.sha256((place / MANIFEST).read_bytes()).hexdigest()


def read(place: Path, manifest_sha256: str = "") -> tuple[Evidence, dict[str, Any]]:
    """The evidence of a folder, and the document that was made of it then; arguments and errors as :func:`check`."""
    check(place, manifest_sha256)
    try:
        evidence = Evidence.model_validate_json((place / _EVIDENCE).read_bytes())
        for name, file in _COUNTERS.items():
            if (place / file).is_file():
                parsed = counters.parse((place / file).read_text(encoding="utf-8"))
                evidence = evidence.model_copy(update={name: parsed})
        if (place / _LOG).is_file():
            log = LogEvidence.model_validate_json((place / _LOG).read_bytes())
            evidence = evidence.model_copy(update={"log": log})
        recorded = json.loads((place / _VERDICT).read_bytes())
        if not isinstance(recorded, dict):
            raise ValueError(f"{_VERDICT} is no document")
        return _with_traces(evidence, place), recorded
    except (OSError, ValueError, ValidationError) as error:
        raise UsageError(
            f"the evidence cannot be read: {str(error).splitlines()[0]}",
            where=str(place),
            next_step="use the fastfill that wrote it (manifest.json names its version), or a newer one",
        ) from error


def check(place: Path, manifest_sha256: str = "") -> Manifest:
    """Compare the folder with its manifest, and that with what was noted down of it.

    Args:
        place: The folder.
        manifest_sha256: The manifest's SHA-256, hexadecimal; empty for whatever it is.

    Raises:
        UsageError: There is no manifest, or it is none; or the hash is none.
        FastfillError: A file was changed, taken away or added, or this is another folder.
    """
    if manifest_sha256 and not re.fullmatch(r"[0-9a-fA-F]{64}", manifest_sha256):
        raise UsageError(
            "this is no SHA-256: 64 hexadecimal digits",
            where="--manifest-sha256",
            next_step="give what prove printed as manifest, or evidence.manifest_sha256 of prove --json",
        )
    try:
        content = (place / MANIFEST).read_bytes()
        manifest = Manifest.model_validate_json(content)
    except (OSError, ValidationError) as error:
        raise UsageError(
            "this is no evidence folder: it has no manifest.json that this version reads",
            where=str(place),
            next_step="give a folder that fastfill prove --evidence DIR wrote",
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if manifest_sha256 and found != manifest_sha256.lower():
        raise FastfillError(
            "this is not the evidence whose hash was noted down",
            where=str(place),
            detail=f"its manifest is {found}",
            next_step="get the folder again from where it was written, or prove again",
        )
    present = set(_names(place))
    wrong = [f"{name}: missing" for name in sorted(manifest.files.keys() - present)]
    wrong += [f"{name}: added" for name in sorted(present - manifest.files.keys())]
    wrong += [
        f"{name}: changed"
        for name, entry in sorted(manifest.files.items())
        if name in present and _entry(place / name) != entry
    ]
    if wrong:
        raise FastfillError(
            "the evidence is not what was recorded",
            where=str(place),
            detail="\n".join(wrong),
            next_step="get the folder again from where it was written, or prove again",
        )
    return manifest


def _with_traces(evidence: Evidence, place: Path) -> Evidence:
    """The traces read again, by the same code that read the server's."""
    trace = evidence.trace
    if trace is None:
        return evidence
    ranks = []
    for one in trace.ranks:
        # The manifest names what is in this folder; a path out of it would be judged unsealed.
        if one.file != PurePath(one.file).name:
            raise ValueError(f"{one.file!r} is no name of a trace")
        again = traces.read(one.file, io.BytesIO((place / _TRACES / one.file).read_bytes()))
        ranks.append(again.model_copy(update={"problem": one.problem or again.problem, "events": one.events}))
    return evidence.model_copy(update={"trace": trace.model_copy(update={"ranks": tuple(ranks)})})


def _names(place: Path) -> list[str]:
    files = (file for file in place.rglob("*") if file.is_symlink() or not file.is_dir())
    return sorted(name for name in (file.relative_to(place).as_posix() for file in files) if name != MANIFEST)


def _entry(file: Path) -> Entry | None:
    """None for what is no plain file."""
    if file.is_symlink() or not file.is_file():
        return None
    content = file.read_bytes()
    return Entry(sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def _text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def _json(file: Path, value: Any) -> None:
    _text(file, json.dumps(value, indent=1) + "\n")
