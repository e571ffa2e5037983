"""The stack file: what it says, what is derived from it, and what a difference does."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from cli_run import fastfill

from fastfill import data
from fastfill.errors import UsageError
from fastfill.explaining import releases
from fastfill.host import checks
from fastfill.kernels.revisions import BY_ID
from fastfill.pinning import compare, render
from fastfill.pinning import stack as stacks

ROOT = Path(__file__).parents[2]
FILE = stacks.path_of(stacks.DEFAULT)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that render reads and writes, as a checkout of their own."""
    for name in ("docker/stacks", "patches", "launch/profiles"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in render.FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(data, "_CHECKOUT", tmp_path)
    return tmp_path


def edit(checkout: Path, old: str, new: str) -> None:
    path = checkout / "docker/stacks" / FILE.name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_every_value_has_a_reason_and_a_source() -> None:
    stack = stacks.load()
    tables = {reason.table for reason in stacks.reasons(stack)}
    homeless = [name for name, _ in stack.values() if not any(name.startswith(f"{table}.") for table in tables)]
    assert homeless == ["name", "unverified"]


def test_the_pinned_kernel_is_one_published_revision_and_right() -> None:
    pinned = stacks.load().aiter.kernels.sha256
    matching = [revision for revision in BY_ID.values() if revision.sha256 == pinned]
    assert [revision.id for revision in matching] == ["D"]
    assert not matching[0].broken
    assert releases.aiter(stacks.load().aiter.commit).revision == "D"


def test_explain_takes_its_pins_from_the_stack_file() -> None:
    release = releases.stack(stacks.DEFAULT)
    stack = stacks.load()
    assert (release.sglang, release.aiter) == (stack.sglang.version, stack.aiter.commit)
    text = (ROOT / "launch/fastfill/explaining/releases.toml").read_text()
    assert not re.search(r"^aiter = ", text, re.MULTILINE)


def test_the_host_is_the_one_that_preflight_wants() -> None:
    host = stacks.load().host

    def dotted(version: tuple[int, ...]) -> str:
        return ".".join(map(str, version))

    wanted = (dotted(checks.DRIVER), dotted(checks.ENGINE), dotted(checks.COMPOSE))
    assert (host.amdgpu, host.docker, host.compose) == wanted


def test_a_digest_covers_values_and_not_reasons(checkout: Path) -> None:
    before = stacks.load()
    edit(checkout, "the newest release before", "some release before")
    assert stacks.load().digest() == before.digest()
    edit(checkout, 'sha256 = "' + before.patches.sha256, 'sha256 = "' + "0" * 64)
    assert stacks.load().digest() != before.digest()
    assert stacks.load().kernel_digest() == before.kernel_digest(), "a patch does not make compiled kernels stale"
    edit(checkout, before.aiter.commit, "1" * 40)
    assert stacks.load().kernel_digest() != before.kernel_digest()


def test_what_is_committed_is_not_stale() -> None:
    ran = fastfill("pins", "render", "--check")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("file", [*render.FILES])
def test_render_tells_and_mends_a_stale_file(checkout: Path, file: str) -> None:
    edit(checkout, stacks.load().aiter.commit, "a" * 40)
    ran = fastfill("pins", "render", "--check")
    assert ran.code == 1
    assert file in ran.err
    assert "fastfill pins render" in ran.err
    assert fastfill("pins", "render").code == 0
    assert "a" * 40 in (checkout / file).read_text()
    assert fastfill("pins", "render", "--check").code == 0


def test_an_edited_patch_makes_its_hash_stale(checkout: Path) -> None:
    patch = next((checkout / "patches" / "sglang-0.5.16").glob("*.patch"))
    patch.write_text(patch.read_text().replace("Description: ", "Description:  ", 1))
    assert fastfill("pins", "render", "--check").code == 1


def test_an_unresolved_digest_says_in_the_builders_own_error_what_to_do(checkout: Path) -> None:
    args = render.arguments(stacks.load())
    assert "fastfill pins resolve" in args["BASE_IMAGE"]
    edit(checkout, 'digest = ""', f'digest = "sha256:{"b" * 64}"')
    assert render.arguments(stacks.load())["BASE_IMAGE"] == f"lmsysorg/sglang:v0.5.16-rocm720-mi35x@sha256:{'b' * 64}"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('commit = "c16d44b9', 'commit = "C16d44b9', "aiter.commit"),
        ("[sglang]", "[sglang]\nflavour = 1", "sglang.flavour: unknown key"),
        ('unverified = ["', 'unverified = ["base.colour", "', "no field base.colour"),
        ('name = "sglang-0.5.16"', 'name = "other"', "in a file named"),
    ],
)
def test_a_wrong_stack_file_names_the_key(checkout: Path, old: str, new: str, says: str) -> None:
    edit(checkout, old, new)
    with pytest.raises(UsageError, match=re.escape(says)):
        stacks.load()


def test_replacing_a_value_keeps_every_other_line() -> None:
    text = FILE.read_text()
    changed = stacks.replace(text, "base.digest", "sha256:" + "c" * 64)
    different = [new for old, new in zip(text.splitlines(), changed.splitlines(), strict=True) if old != new]
    assert different == [f'digest = "sha256:{"c" * 64}"']


def test_compare_puts_intended_beside_live() -> None:
    lines, missing = compare.compare({"a": 1, "b": "x", "c": "y"}, {"a": "1", "b": None})
    assert [(line.name, line.live, line.ok) for line in lines] == [("a", "1", True), ("b", None, False)]
    assert missing == ["c"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--profile", "off"), "--profile"),
        (("--api-key-file", "k"), "--api-key-file"),
        (("--aiter", "a", "--container", "c"), "--container"),
    ],
)
def test_verify_refuses_what_it_would_not_look_at(words: tuple[str, ...], option: str) -> None:
    ran = fastfill("pins", "verify", *words)
    assert ran.code == 2 and f"{option} has no effect here" in ran.err and "next:" in ran.err


def test_verify_names_the_kernel_file_that_differs(tmp_path: Path) -> None:
    objects = tmp_path / "hsa/gfx950/fmha_v3_fwd"
    objects.mkdir(parents=True)
    (tmp_path / "aiter/ops").mkdir(parents=True)
    for name in stacks.load().aiter.kernels.sha256:
        (objects / name).write_bytes(b"another file")
    (tmp_path / "fastfill-pins.json").write_text(json.dumps({"aiter": "d" * 40}))
    ran = fastfill("pins", "verify", "--aiter", str(tmp_path), "--json")
    assert ran.code == 1
    fields = {field["name"]: field for field in json.loads(ran.out)["fields"]}
    assert not fields["aiter.kernels.sha256.fwd_hd256_fp8.co"]["ok"]
    assert fields["aiter.commit"] == {
        "name": "aiter.commit",
        "intended": stacks.load().aiter.commit,
        "live": "d" * 40,
        "ok": False,
    }


def test_show_prints_what_is_not_verified() -> None:
    ran = fastfill("pins", "show")
    assert ran.code == 0
    assert "digest: (not resolved)  UNVERIFIED" in ran.out
    document = json.loads(fastfill("pins", "show", "--json").out)
    assert document["values"]["aiter.commit"] == stacks.load().aiter.commit
