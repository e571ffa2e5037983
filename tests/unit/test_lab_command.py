"""The lab's command and environment, without running them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastfill import data
from fastfill.errors import UsageError
from fastfill.lab import command, models, packages, patched, stacks
from fastfill.lab.command import Paths
from fastfill.lab.spec import LabSpec

PATHS = Paths(
    python=Path("/env/bin/python"),
    links=Path("/links"),
    sources=None,
    model=Path("/models/dense"),
    run=Path("/run/31000"),
    state=Path("/run/31000/state"),
)


def test_the_server_is_started_by_fastfill_serve() -> None:
    spec = LabSpec(profile="off", port=31000, env={"A": "1"}, allow=("gqa_ratio",), flags=("--disable-radix-cache",))
    words = command.argv(spec, PATHS)
    ours, theirs = words[: words.index("--")], words[words.index("--") + 1 :]
    expected = """/env/bin/python -m fastfill serve --profile off --model /models/dense --tp 1 --host 127.0.0.1
        --port 31000 --state-dir /run/31000/state --env A=1 --allow gqa_ratio"""
    assert ours == expected.split()
    expected = """--device cpu --disable-cuda-graph --sleep-on-idle --mem-fraction-static 0.3 --max-total-tokens 32768
        --max-running-requests 16 --context-length 16384 --disable-radix-cache"""
    assert theirs == expected.split()


@pytest.mark.parametrize("flags", [("--max-total-tokens", "500"), ("--max-total-tokens=500",)])
def test_the_users_flag_takes_the_place_of_the_labs(flags: tuple[str, ...]) -> None:
    words = command.argv(LabSpec(flags=flags), PATHS)
    assert [word for word in words if word.startswith("--max-total-tokens")] == [flags[0]]


def test_what_decides_behaviour_is_not_inherited() -> None:
    inherited = {
        "SGLANG_PLUGINS": "none",
        "AITER_EMULATOR_FAULT": "nan",
        "GPU_ARCHS": "gfx942",
        "ENABLE_CK": "0",
        "PYTHONPATH": "/elsewhere",
        "FASTFILL_STATE_DIR": "/elsewhere",
        "HOME": "/home/me",
    }
    env = command.environment(LabSpec(), PATHS, inherited)
    assert env["HOME"] == "/home/me"
    assert env["PYTHONPATH"].split(":") == ["/links", str(packages.emulator()), str(packages.standins())]
    assert not {"SGLANG_PLUGINS", "AITER_EMULATOR_FAULT", "GPU_ARCHS", "ENABLE_CK", "FASTFILL_STATE_DIR"} & env.keys()


def test_two_ranks_get_a_thread_each() -> None:
    env = command.environment(LabSpec(tp=2), PATHS, {})
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["SGLANG_CPU_OMP_THREADS_BIND"] == "0|1"
    assert "--disable-custom-all-reduce" in command.argv(LabSpec(tp=2), PATHS)
    assert "SGLANG_CPU_OMP_THREADS_BIND" not in command.environment(LabSpec(), PATHS, {})


def test_a_server_reads_other_files_of_sglang_where_it_is_told_to() -> None:
    elsewhere = PATHS._replace(sources=Path("/env/pristine"))
    assert command.environment(LabSpec(), elsewhere, {})["FASTFILL_LAB_SOURCES"] == "/env/pristine"
    assert "FASTFILL_LAB_SOURCES" not in command.environment(LabSpec(), PATHS, {})


@pytest.mark.parametrize(("model", "layers"), [("dense", 2), ("hybrid", 1)])
def test_the_emulator_learns_the_number_of_attention_layers(model: str, layers: int, tmp_path: Path) -> None:
    assert command.environment(LabSpec(model=model), PATHS, {})["AITER_EMULATOR_LAYERS"] == str(layers)
    (tmp_path / "config.json").write_text(json.dumps(models.config(model)))
    folder = LabSpec(model=str(tmp_path))
    assert command.environment(folder, PATHS, {})["AITER_EMULATOR_LAYERS"] == str(layers)
    assert ("--max-mamba-cache-size" in command.argv(folder, PATHS)) == (model == "hybrid")


@pytest.mark.parametrize("variant", models.VARIANTS)
def test_every_variant_is_what_it_says(variant: str) -> None:
    description = models.config(variant)
    text = description.get("text_config", description)
    ratio = text["num_attention_heads"] / text["num_key_value_heads"]
    assert text["head_dim"] == (128 if variant == "dense-hd128" else 256)
    assert ratio == (6 if variant == "dense-gqa6" else 2)


def test_a_spec_survives_the_run_folder_and_names_its_differences() -> None:
    spec = LabSpec(model="hybrid", env={"A": "1"}, flags=("--x", "1"), allow=("all",), tp=2)
    assert LabSpec.read(spec.document()) == spec
    assert spec.differences(spec) == []
    assert spec.differences(LabSpec(model="dense", env={"A": "1"}, flags=("--x", "1"), allow=("all",), tp=2)) == [
        "model: dense, not hybrid"
    ]


@pytest.mark.parametrize(
    ("wish", "word"),
    [
        ({"stack": "sglang-9"}, "sglang-0.5.16"),
        ({"model": "nothing"}, "dense-hd128"),
        ({"tp": 3}, "--tp"),
        ({"port": 0}, "port"),
    ],
)
def test_an_impossible_spec_is_a_usage_error(wish: dict[str, object], word: str) -> None:
    with pytest.raises(UsageError) as caught:
        LabSpec(**wish).check()  # type: ignore[arg-type]
    assert word in "\n".join(caught.value.lines())


def test_the_environments_name_changes_with_a_lock(tmp_path: Path) -> None:
    stack = stacks.find("sglang-0.5.16")
    changed = tmp_path / "lab.txt"
    changed.write_bytes(stack.lock.read_bytes() + b"\n")
    assert stack.environment_name() != stack._replace(lock=changed).environment_name()
    assert stack.environment_name().startswith("sglang-0.5.16-")


def pins(lock: Path) -> dict[str, str]:
    """The versions that a lock names; every entry is pinned and hashed, or pip's --require-hashes refuses it."""
    entries = lock.read_text().replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        assert "==" in entry and "--hash=sha256:" in entry, entry
    return dict(entry.split()[0].split("==") for entry in entries)


def test_locks_are_whole() -> None:
    stack = stacks.find("sglang-0.5.16")
    assert pins(stack.torch_lock)
    names = pins(stack.lock).keys()
    assert {"sglang", "triton", "transformers", "typer", "filelock", "psutil", "pyelftools"} <= names
    assert "torch" not in names and "torchvision" not in names


@pytest.mark.parametrize("version", stacks.RELEASES[1:])
def test_a_later_releases_lock_holds_what_differs_and_nothing_else(version: str) -> None:
    stack = stacks.find(f"sglang-{version}")
    assert stack.over is not None and stack.over.over is None
    base, own = pins(stack.over.lock), pins(stack.lock)
    assert own["sglang"] == version
    assert all(base.get(name) != pinned for name, pinned in own.items())
    wanted = [line for line in stack.lock.with_suffix(".in").read_text().splitlines() if not line.startswith("#")]
    assert all({**base, **own}[name] == pinned for name, pinned in (line.split("==") for line in wanted))
    assert stack.environment_name().startswith(f"sglang-{version}-")
    assert stack.environment_name() != stack._replace(over=stack.over._replace(lock=stack.lock)).environment_name()


def test_a_release_is_patched_as_soon_as_there_is_a_series_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "patches", lambda: tmp_path)
    for version in ("0.5.16", "0.5.23"):
        assert f"sglang-{version}-unpatched" not in stacks.names()
        assert not stacks.find(f"sglang-{version}").patched
        (tmp_path / f"sglang-{version}").mkdir()
        (tmp_path / f"sglang-{version}" / "series").touch()
        assert stacks.find(f"sglang-{version}").patched
        assert not stacks.find(f"sglang-{version}-unpatched").patched
        assert f"sglang-{version}-unpatched" in stacks.names()
    assert stacks.find("sglang-0.5.23").environment_name() == stacks.find("sglang-0.5.23-unpatched").environment_name()
    assert not stacks.find("sglang-0.5.19-unpatched").patched


def test_an_unpatched_stack_reads_the_wheels_files_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is shared: what another checkout has patched stays patched, and is not served."""
    stack = stacks.find("sglang-0.5.19-unpatched")
    assert patched.sources(stack, tmp_path) is None
    (tmp_path / "fastfill-series").mkdir()
    (tmp_path / "fastfill-series" / "stamp.json").write_text('{"sha256": "of another series"}')
    assert patched.sources(stack, tmp_path) == tmp_path / patched.PRISTINE


@pytest.mark.parametrize("text", [b"\xff", b"{", b"[]", b"{}", b'{"num_hidden_layers": "many"}'])
def test_a_model_whose_config_makes_no_sense_is_refused_before_anything_starts(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(UsageError, match="config cannot be used"):
        LabSpec(model=str(tmp_path)).check()


def test_a_profile_that_does_not_exist_is_refused_before_anything_is_started() -> None:
    with pytest.raises(UsageError, match="there is no profile"):
        LabSpec(profile="nope").check()
