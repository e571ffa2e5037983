"""Misspelt SGLang flags are refused everywhere, with what was meant; what is not known of a release is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import fastfill

from fastfill.explaining import releases
from fastfill.lab import stacks
from fastfill.serving import arguments
from fastfill.serving.checks import Installed
from fastfill.serving.launch import Request, prepare
from fastfill.serving.profile import available, load

MODEL = str(Path(__file__).resolve().parents[1] / "data" / "configs" / "qwen3.5-397b-a17b.json")
LOAD = ("--workload", "isl=6000,osl=2,conc=1,requests=2")


def meant(flag: str, release: str = "0.5.16") -> tuple[str, ...] | None:
    found = arguments.misspelt([flag, "1"], release)
    return found[0].meant if found else None


@pytest.mark.parametrize(
    ("flag", "nearest"),
    [
        ("--chunked-prefil-size", "--chunked-prefill-size"),
        ("--chunked_prefill_size=512", "--chunked-prefill-size"),
        ("--max-prefil-tokens", "--max-prefill-tokens"),
        ("--disable-radixcache", "--disable-radix-cache"),
        ("--kv-cache-type", "--kv-cache-dtype"),
        ("--mem-fraction-statics=0.8", "--mem-fraction-static"),
        ("--enable-mixed-chunks", "--enable-mixed-chunk"),
    ],
)
def test_the_nearest_name_comes_first(flag: str, nearest: str) -> None:
    found = meant(flag)
    assert found is not None and found[0] == nearest


def test_what_is_like_nothing_has_no_suggestion() -> None:
    (found,) = arguments.misspelt(["--nonsense"], "0.5.16")
    assert found == arguments.Misspelt("--nonsense", ())
    assert found.says("SGLang 0.5.16") == "SGLang 0.5.16 has no --nonsense"


@pytest.mark.parametrize(
    "flag", ["--tp-size", "--tensor-parallel-size", "--tensor-p", "--chunked-pre", "--page-size=64"]
)
def test_names_aliases_and_beginnings_of_one_argument_are_taken(flag: str) -> None:
    assert meant(flag) is None


def test_a_beginning_of_several_arguments_is_refused_with_them() -> None:
    """Python's parser: ``--pp 2`` could be --pp-size, --pp-async-batch-depth or --pp-max-micro-batch-size."""
    (found,) = arguments.misspelt(["--pp", "2"], "0.5.16")
    assert found.ambiguous and set(found.meant) == {"--pp-size", "--pp-async-batch-depth", "--pp-max-micro-batch-size"}


def test_values_are_no_flags() -> None:
    assert arguments.misspelt(["--chunked-prefill-size", "-1", "--served-model-name", "x"], "0.5.16") == []


def test_a_flag_may_belong_to_one_release_only() -> None:
    old, new = (set(arguments.known(release) or ()) for release in ("0.5.16", "0.5.23"))
    gone, come = sorted(old - new), sorted(new - old)
    assert come, "0.5.23 has arguments that 0.5.16 lacks"
    assert arguments.misspelt(come, "0.5.16") and not arguments.misspelt(come, "0.5.23")
    assert not arguments.misspelt(gone + come, ""), "where no SGLang is installed any known release's flag will do"
    assert arguments.misspelt(["--chunked-prefil-size"], "")


def test_every_release_that_the_lab_runs_is_known() -> None:
    assert arguments.releases() == sorted(stacks.RELEASES)
    assert {releases.stack(name).sglang for name in releases.stacks()} <= set(arguments.releases())


@pytest.mark.parametrize("profile", available())
@pytest.mark.parametrize("release", sorted(stacks.RELEASES))
def test_the_shipped_profiles_are_spelt_right(profile: str, release: str) -> None:
    assert arguments.misspelt([f"--{name}" for name in load(profile).flags], release) == []


def test_an_unknown_release_is_not_checked_and_that_is_said() -> None:
    assert arguments.misspelt(["--nonsense"], "0.6.0") == []
    assert "0.6.0" in arguments.unchecked("0.6.0")
    assert arguments.unchecked("0.5.16") == arguments.unchecked("") == ""
    done = fastfill("explain", "--model", MODEL, "--tp", "4", "--sglang", "0.5.18", "--", "--nonsense", "1")
    assert done.code != 2 and "the arguments of SGLang 0.5.18 are not known here" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--model", MODEL, "--tp", "4", *LOAD, "--flag", "kv-cache-dtipe fp8_e4m3"),
        ("explain", "--model", MODEL, "--tp", "4", "--", "--kv-cache-dtipe", "fp8_e4m3"),
        ("explain", "--model", MODEL, "--tp", "4", "--sglang", "0.5.23", "--", "--kv-cache-dtipe=fp8_e4m3"),
        ("serve", "--profile", "off", "--model", "org/model", "--print", "--", "--kv-cache-dtipe", "fp8_e4m3"),
        ("lab", "up", "--", "--kv-cache-dtipe", "fp8_e4m3"),
    ],
    ids=["plan", "explain", "explain-unpatched", "serve", "lab"],
)
def test_every_command_that_takes_flags_refuses_and_suggests(words: tuple[str, ...]) -> None:
    done = fastfill(*words)
    assert done.code == 2, done.out + done.err
    assert "--kv-cache-dtipe" in done.err and "did you mean --kv-cache-dtype?" in done.err
    assert done.out == ""


def test_a_profile_of_ones_own_is_checked_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "off"\n[fastfill]\ndescription = "mine"\n[flags]\nmax-prefil-tokens = 4096\n')
    for words in (
        ("serve", "--profile", str(file), "--model", "org/model", "--print"),
        ("plan", "--model", MODEL, "--tp", "4", *LOAD, "--profile", str(file)),
    ):
        done = fastfill(*words)
        assert done.code == 2 and "did you mean --max-prefill-tokens?" in done.err


def findings(release: str | None, *words: str, allow: tuple[str, ...] = ()) -> set[tuple[str, str]]:
    request = Request(load("off"), options={"model-path": "org/model"}, extra=list(words), allow=list(allow))
    launch = prepare(request, environ={"HF_HOME": "/nowhere"}, python="python", installed=Installed(release))
    return {(found.id, found.severity) for found in launch.findings}


def test_serve_looks_at_the_release_that_is_installed() -> None:
    assert ("flag_unknown", "refuse") in findings("0.5.16", "--nonsense", "1")
    assert ("flag_unknown", "refuse") in findings("0.5.16+rocm720", "--nonsense", "1")
    assert ("flag_unknown", "warn") in findings("0.5.16", "--nonsense", "1", allow=("flag_unknown",))
    assert findings("0.6.0", "--nonsense", "1") == {("flags_not_checked", "note")}
