"""How what is unverified is looked up: the commands, what is read in their answers, what is written. No network."""

from __future__ import annotations

import pytest

from fastfill.errors import NotReadyError
from fastfill.pinning import resolve
from fastfill.pinning import stack as stacks

DIGEST, COMMIT, TAG = f"sha256:{'a' * 64}", "b" * 40, "c" * 40


def lookup(field: str) -> resolve.Lookup:
    return next(item for item in resolve.lookups(stacks.load()) if item.field == field)


def test_every_unverified_field_has_a_look_up() -> None:
    assert {item.field for item in resolve.lookups(stacks.load())} >= set(stacks.load().unverified)


def test_the_commands() -> None:
    image = "lmsysorg/sglang:v0.5.16-rocm720-mi35x"
    assert lookup("base.digest").argv == [
        *("docker", "buildx", "imagetools", "inspect", image, "--format", "{{json .Manifest}}")
    ]
    sglang = "https://github.com/sgl-project/sglang.git"
    assert lookup("sglang.commit").argv == [*("git", "ls-remote", sglang, "refs/tags/v0.5.16", "refs/tags/v0.5.16^{}")]
    assert lookup("model.revision").argv[2].endswith("/amd/Qwen3.5-397B-A17B-MXFP4")


@pytest.mark.parametrize(
    ("field", "answer", "value"),
    [
        ("base.digest", f'{{"digest": "{DIGEST}", "size": 1}}', DIGEST),
        ("base.digest", '{"digest": "latest"}', ""),
        ("base.digest", "not json", ""),
        ("sglang.commit", f"{TAG}\trefs/tags/v0.5.16\n{COMMIT}\trefs/tags/v0.5.16^{{}}\n", COMMIT),
        ("sglang.commit", f"{COMMIT}\trefs/tags/v0.5.16\n", COMMIT),
        ("sglang.commit", "", ""),
        ("model.revision", f"{COMMIT}\tHEAD\n", COMMIT),
    ],
)
def test_what_is_read_in_an_answer(field: str, answer: str, value: str) -> None:
    assert lookup(field).read(answer) == value


def test_one_field_is_written_and_no_longer_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "_ask", lambda item: DIGEST)
    text, found = resolve.resolve(stacks.path_of(stacks.DEFAULT).read_text(), stacks.load(), ["base.digest"])
    assert found == {"base.digest": DIGEST}
    assert f'digest = "{DIGEST}"' in text
    assert 'unverified = ["sglang.commit", "model.revision"]' in text


def test_a_failed_look_up_says_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = resolve.Lookup("base.digest", ["git", "ls-remote", "/no/such/repository"], lambda answer: answer)
    with pytest.raises(NotReadyError) as refused:
        resolve._ask(failing)
    lines = "\n".join(refused.value.lines())
    assert "git ls-remote /no/such/repository" in lines
    assert "by hand" in lines
