"""Launch profiles: the shipped ones, and what is refused in one of your own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastfill import data
from fastfill.errors import UsageError
from fastfill.serving.profile import available, load


def test_these_ship() -> None:
    assert available() == ["balanced", "bf16-kv", "long-context", "long-context-mtp", "off"]


def test_long_context_is_what_the_path_needs() -> None:
    profile = load("long-context")
    assert profile.env == {
        "SGLANG_AITER_FMHA_FP8_ASM": "1",
        "SGLANG_USE_AITER": "1",
        "SGLANG_USE_AITER_UNIFIED_ATTN": "0",
        "ROCM_QUICK_REDUCE_QUANTIZATION": "NONE",
    }
    assert profile.flags == {
        "attention-backend": "aiter",
        "kv-cache-dtype": "fp8_e4m3",
        "chunked-prefill-size": -1,
        "max-prefill-tokens": 65536,
        "page-size": 16,
        "enable-metrics": True,
    }


def test_off_differs_from_long_context_in_the_flag_alone() -> None:
    on, off = load("long-context"), load("off")
    assert off.flags == on.flags
    assert off.env == {**on.env, "SGLANG_AITER_FMHA_FP8_ASM": "0"}
    kits = [profile.fastfill.model_dump(exclude={"description"}) for profile in (on, off)]
    assert kits[0] == kits[1]


@pytest.mark.parametrize("name", available())
def test_every_profile_can_be_proven_and_is_lossless_and_described(name: str) -> None:
    profile = load(name)
    assert profile.fastfill.forced_fallback
    assert profile.flags["enable-metrics"] is True
    assert profile.env["ROCM_QUICK_REDUCE_QUANTIZATION"] == "NONE"
    assert profile.fastfill.description.endswith(".")


@pytest.mark.parametrize("name", available())
def test_every_value_has_its_reason_in_a_comment(name: str) -> None:
    lines = (data.profiles() / f"{name}.toml").read_text().splitlines()
    for number, line in enumerate(lines):
        key = line.split("=", 1)[0].strip()
        if "=" not in line or line.startswith("#") or key in ("extends", "description"):
            continue
        above = [before for before in lines[:number] if before.strip()][-1]
        grouped = key.startswith("speculative-")
        assert above.startswith("#") or grouped, f"{name}: {key} has no reason"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[fastfill]\ndescription = 'x'\nlongest = 1", "fastfill.longest: unknown key"),
        ("[fastfill]\ndescription = 'x'\n[flag]\n", "flag: unknown key"),
        ("[fastfill]\ndescription = 'x'\nlongest_prompt = 0", "fastfill.longest_prompt"),
        ("[fastfill]\ndescription = 'x'\n[env]\nA = 1", "env.A"),
        ("[fastfill]\ndescription = 'x'\n[env]\n'a b' = '1'", "'a b' is not the name"),
        ("[fastfill]\ndescription = 'x'\n[flags]\n'--page-size' = 16", "without the leading dashes"),
        ("[fastfill]\ndescription = 'x'\n[flags.page-size]\na = 1", "flags.page-size"),
        ("[env]\nA = '1'", "fastfill.description"),
        ("env = 1", "env: must be a table"),
        ("extends = 'nothing'", "there is no profile 'nothing'"),
        ("extends = 'mine'", "leads back"),
        ("extends = 1", "extends: must be the name"),
        ("= 1", "not valid TOML"),
    ],
)
def test_refused_with_the_file_and_the_key(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        load(str(path))
    assert says in refused.value.what
    assert str(tmp_path) in refused.value.where or "nothing" in refused.value.where


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there is no profile 'fast'") as refused:
        load("fast")
    assert "long-context-mtp" in refused.value.next_step


def test_a_profile_of_your_own_extends_a_shipped_one_and_switches_a_flag_off(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("extends = 'long-context'\n[fastfill]\ndescription = 'x'\n[flags]\nenable-metrics = false\n")
    profile = load(str(path))
    assert (profile.name, profile.flags["enable-metrics"], profile.flags["page-size"]) == ("mine", False, 16)


def test_the_list_and_its_document() -> None:
    command = [sys.executable, "-m", "fastfill", "profiles"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line.split()[0] for line in listed.splitlines()] == available()
    document = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=60).stdout)
    assert document["schema"] == "fastfill.profiles/1"
    assert [profile["name"] for profile in document["profiles"]] == available()
