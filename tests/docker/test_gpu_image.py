"""The GPU image's steps on stand-ins of what only a network has: they run to their end, or say why not and what to do.

Not run on MI350X: the vendor's image here holds no GPU code, and aiter's compile step is not executed.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from machine import BAKE, KNOWN, SECRETS, bake, held, run
from test_lab_image import cached_steps
from vendor_standin import Vendor

from fastfill.kernels import revisions
from fastfill.pinning import stack as stacks


@pytest.fixture(scope="module")
def checkout(vendor: Vendor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose stack names the stand-ins, resolved as ``fastfill init`` would."""
    place = vendor.checkout(tmp_path_factory.mktemp("gpu") / "checkout")
    vendor.fastfill(place, "pins", "resolve")
    return place


@pytest.fixture(scope="module")
def built(checkout: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """The build's output."""
    return bake("gpu", scratch, "--set=gpu.tags=fastfill-test:gpu", context=checkout)


def fails(vendor: Vendor, scratch: Path, place: Path, *, compiled: bool = False, **changes: str) -> str:
    """What a build with a changed stack says when it fails."""
    checkout = vendor.checkout(place / "checkout", **changes)
    vendor.fastfill(checkout, "pins", "resolve")
    return failure(scratch, checkout, compiled=compiled)


def failure(scratch: Path, checkout: Path, *, compiled: bool = False) -> str:
    """The output of a build that must fail, and unless said otherwise before anything is compiled."""
    done = bake("gpu", scratch, "--set=gpu.tags=fastfill-test:bad", context=checkout, check=False)
    assert done.returncode != 0
    assert ("aiter's compile step: not executed here" in done.stderr) == compiled
    return done.stderr


def test_resolve_asks_the_registry_and_the_repositories(vendor: Vendor, checkout: Path) -> None:
    values = json.loads(vendor.fastfill(checkout, "pins", "show", "--json").stdout)["values"]
    image = f"{vendor.registry}/lmsysorg/sglang:v0.5.16-rocm720-mi35x"
    pushed = run("docker", "image", "inspect", image, "--format", "{{index .RepoDigests 0}}").stdout.strip()
    assert pushed.endswith(values["base.digest"]) and values["base.digest"].startswith("sha256:")
    assert values["model.revision"] == vendor.commits["model"]
    assert len(values["sglang.commit"]) == 40
    assert values["unverified"] == []
    assert vendor.fastfill(checkout, "pins", "render", "--check").returncode == 0


def test_it_runs_to_its_end(built: subprocess.CompletedProcess[str]) -> None:
    assert "aiter's compile step: not executed here" in built.stderr
    assert "modules for gfx950" in built.stderr


def test_bake_asks_for_what_the_stack_says(vendor: Vendor, checkout: Path) -> None:
    printed = run(*BAKE, "--print", "gpu", cwd=checkout).stdout
    args = json.loads(printed)["target"]["gpu"]["args"]
    values = json.loads(vendor.fastfill(checkout, "pins", "show", "--json").stdout)
    assert args["AITER_COMMIT"] == values["values"]["aiter.commit"]
    assert args["AITER_SUBMODULE_COMMIT"] == values["values"]["aiter.submodule.commit"]
    assert args["BASE_IMAGE"].endswith("@" + values["values"]["base.digest"])
    assert args["STACK_DIGEST"] == values["digest"]


def inside(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run("docker", "run", "--rm", "--entrypoint", words[0], "fastfill-test:gpu", *words[1:], check=check)


def test_its_labels_name_the_stack(built: object, vendor: Vendor, checkout: Path) -> None:
    labels = json.loads(run("docker", "image", "inspect", "-f", "{{json .Config.Labels}}", "fastfill-test:gpu").stdout)
    values = json.loads(vendor.fastfill(checkout, "pins", "show", "--json").stdout)
    assert labels["fastfill.stack.digest"] == values["digest"]
    assert labels["org.opencontainers.image.base.digest"] == values["values"]["base.digest"]


def test_no_layer_holds_a_secret(built: object) -> None:
    assert held("fastfill-test:gpu", [*SECRETS, *KNOWN]) == {KNOWN[0]}, "the layers are readable, and hold no secret"


def test_its_files_are_as_pinned(built: object) -> None:
    document = json.loads(inside("fastfill", "pins", "verify", "--json").stdout)
    assert all(field["ok"] for field in document["fields"])
    names = {field["name"] for field in document["fields"]}
    assert {"sglang.version", "patches.sha256", "aiter.commit", "aiter.submodule.commit"} <= names
    assert inside("fastfill", "patch", "check").returncode == 0


def test_the_bases_own_packages_are_untouched(built: object) -> None:
    frozen = inside("python3", "-m", "pip", "freeze", "--all").stdout.splitlines()
    assert "psutil==7.0.0" in frozen
    assert "torch==2.9.1+rocm7.2.0" in frozen
    assert any(line.startswith("typer==") for line in frozen)


def test_stale_modules_and_locks_are_gone(built: object) -> None:
    jit = "/sgl-workspace/aiter/aiter/jit"
    listing = inside("find", jit, "-name", "*.so", "-size", "0", "-o", "-name", "lock_*").stdout
    assert listing == ""
    assert "mha_batch_prefill_fp8bf16" in inside("ls", jit).stdout, "the fallback is prebuilt"


def test_its_entrypoint_serves(built: object) -> None:
    done = run("docker", "run", "--rm", "fastfill-test:gpu", "--profile", "long-context", "--model", "x/y", "--print")
    assert "sglang.launch_server" in done.stdout
    assert "SGLANG_AITER_FMHA_FP8_ASM=1" in done.stdout


def test_a_group_with_a_zero_before_it_is_that_group(built: object) -> None:
    """As compose.yaml gives the second of two that may be the same."""
    words = ("--group-add", "993", "--group-add", "0993", "--group-add", "0109", "--entrypoint", "id")
    groups = run("docker", "run", "--rm", *words, "fastfill-test:gpu", "-G").stdout.split()
    assert {"993", "109"} <= set(groups)


def test_a_container_is_verified_from_outside(built: object, vendor: Vendor, checkout: Path) -> None:
    name = "fastfill-test-gpu"
    run("docker", "run", "--detach", "--rm", "--name", name, "--entrypoint", "sleep", "fastfill-test:gpu", "300")
    try:
        done = vendor.fastfill(checkout, "pins", "verify", "--container", name, "--json", check=False)
    finally:
        run("docker", "rm", "--force", name)
    fields = {field["name"]: field["ok"] for field in json.loads(done.stdout)["fields"]}
    assert done.returncode == 0, fields
    assert {"stack", "base.digest", "sglang.version", "aiter.commit"} <= set(fields)


def test_an_edited_profile_compiles_nothing_again(
    built: object, vendor: Vendor, checkout: Path, scratch: Path, tmp_path: Path
) -> None:
    profile = checkout / "launch/profiles/balanced.toml"
    profile.write_text(profile.read_text() + "# edited\n")
    done = bake("gpu", scratch, "--set=gpu.tags=fastfill-test:gpu", context=checkout)
    steps = cached_steps(done.stderr)
    assert steps["aiter"] and all(steps["aiter"])
    assert not all(steps["server"])


def test_an_unresolved_digest_is_refused(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    assert "run `fastfill pins resolve`" in failure(scratch, vendor.checkout(tmp_path / "checkout"))


def test_a_commit_that_is_not_there_is_refused(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    said = fails(vendor, scratch, tmp_path, aiter__commit="1" * 40)
    assert f"does not have the pinned commit {'1' * 40}" in said
    assert "fastfill pins render" in said


def test_another_submodule_is_refused(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    said = fails(vendor, scratch, tmp_path, aiter__submodule__commit="2" * 40)
    assert f"not at the pinned {'2' * 40}" in said


def test_another_kernel_file_is_refused(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    checkout = vendor.checkout(tmp_path / "checkout")
    vendor.fastfill(checkout, "pins", "resolve")
    file = checkout / "docker/stacks/sglang-0.5.16.toml"
    pinned = vendor.kernels["fwd_hd256_fp8_causal_group.co"]
    file.write_text(file.read_text().replace(pinned, "3" * 64))
    vendor.fastfill(checkout, "pins", "render")
    said = failure(scratch, checkout)
    assert "aiter.kernels.sha256.fwd_hd256_fp8_causal_group.co" in said
    assert "FAIL" in said and pinned in said


def test_the_broken_revision_is_named(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    """Its real files are not here: this checkout takes the stand-in's kernel for one of revision B."""
    checkout = vendor.checkout(tmp_path / "checkout")
    vendor.fastfill(checkout, "pins", "resolve")
    known = checkout / "launch/fastfill/kernels/revisions.py"
    wrong = revisions.BY_ID["B"].sha256[revisions.CAUSAL_GROUP]
    known.write_text(known.read_text().replace(wrong, vendor.kernels[revisions.CAUSAL_GROUP]))
    said = failure(scratch, checkout)
    assert f"{revisions.CAUSAL_GROUP} is of revision B: wrong: the causal kernels leave rows unwritten" in said
    assert "fix: install aiter main at or after" in said


def test_another_sglang_is_refused(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    vendor.push_release("0.5.17", "v0.5.17-rocm720-mi35x")
    said = fails(vendor, scratch, tmp_path, base__tag="v0.5.17-rocm720-mi35x")
    assert "the base image has SGLang 0.5.17, the stack pins 0.5.16" in said
    assert "fastfill pins resolve" in said


def test_a_patch_that_does_not_apply_is_refused(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    checkout = vendor.checkout(tmp_path / "checkout")
    vendor.fastfill(checkout, "pins", "resolve")
    patch = checkout / "patches/sglang-0.5.16/fp8-hd256-prefill.patch"
    lines = patch.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith("@@")) + 1
    lines[at] = " # a line that SGLang does not have\n"
    patch.write_text("".join(lines))
    vendor.fastfill(checkout, "pins", "render")
    said = failure(scratch, checkout)
    assert "the series does not apply to a source that it lists" in said
    assert "remake the patch" in said


def test_a_module_that_was_not_built_is_refused(vendor: Vendor, scratch: Path, tmp_path: Path) -> None:
    said = fails(vendor, scratch, tmp_path, compiled=True, aiter__commit=vendor.commits["aiter-incomplete"])
    assert "module_moe_asm.so was not built" in said


def test_the_shipped_stack_is_not_resolved_by_these_tests() -> None:
    assert stacks.load().base.image == "lmsysorg/sglang"
