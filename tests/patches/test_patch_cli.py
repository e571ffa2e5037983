"""`fastfill patch` as it is run: exit codes, what goes where, the JSON document."""

from __future__ import annotations

import json
import subprocess
import sys

from patch_targets import BACKEND, UTILS, Case


def fastfill(*argv: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastfill", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_check_apply_check_reverse(case: Case) -> None:
    place = ("--target", case.root, "--series", case.series)
    assert fastfill("patch", "check", *place).returncode == 1
    assert fastfill("patch", "apply", *place).returncode == 0
    again = fastfill("patch", "apply", *place)
    assert (again.returncode, "already applied" in again.stdout) == (0, True)
    assert fastfill("patch", "check", *place).returncode == 0
    assert fastfill("patch", "reverse", *place).returncode == 0
    assert (case.root / BACKEND).read_bytes() == case.before[BACKEND]


def test_the_document(case: Case) -> None:
    answer = fastfill("patch", "apply", "--target", case.root, "--series", case.series, "--json")
    document = json.loads(answer.stdout)
    assert document["schema"] == "fastfill.patch/1"
    assert (document["action"], document["state"], document["changed"]) == ("apply", "applied", True)
    assert document["version"] == "0.5.16"
    assert [patch["name"] for patch in document["patches"]] == ["step-0.patch", "step-1.patch"]
    assert [(file["path"], file["applied"], file["total"]) for file in document["files"]] == [
        (BACKEND, 2, 2),
        (UTILS, 1, 1),
    ]


def test_a_refusal_goes_to_stderr_with_the_diff_and_the_next_command(case: Case) -> None:
    (case.root / UTILS).write_bytes(b"mine\n")
    answer = fastfill("patch", "apply", "--target", case.root, "--series", case.series)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "+mine" in answer.stderr
    assert "next:  " in answer.stderr


def test_a_missing_target_is_a_usage_error(case: Case) -> None:
    answer = fastfill("patch", "apply", "--target", case.root / "nowhere")
    assert (answer.returncode, "does not exist" in answer.stderr) == (2, True)
