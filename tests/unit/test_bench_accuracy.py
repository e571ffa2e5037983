"""The accuracy gate: questions, answers, verdicts, and a run over three arms."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bench_fakes import World
from cli_run import fastfill

from fastfill.benchmark import accuracy, gate, questions, report, scoring
from fastfill.benchmark.arms import Arm
from fastfill.benchmark.journal import Journal
from fastfill.benchmark.proven import Proof, judge
from fastfill.benchmark.questions import Question
from fastfill.benchmark.servers import Servers
from fastfill.errors import FastfillError, NotReadyError, UsageError
from fastfill.serving.profile import load


def test_the_shipped_questions_are_read_and_distinct() -> None:
    found = questions.read(questions.SHIPPED)
    assert len(found) == len({one.question for one in found}) >= 36
    assert all(one.answer.lstrip("-").isdigit() for one in found)


def test_an_answer_in_the_form_of_gsm8k_is_its_last_number(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"question": "q", "answer": "She has 3 * 4 = 12.\n#### 1,012"}) + "\n\n")
    assert questions.read(file) == [Question("q", "1012")]


@pytest.mark.parametrize("line", ["{", "[]", '{"question": "q"}', '{"question": "q", "answer": "none"}'])
def test_what_is_no_question_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"question": "q", "answer": "1"}\n' + line + "\n")
    with pytest.raises(UsageError) as raised:
        questions.read(file)
    assert raised.value.where == f"{file}:2"


def test_prompts_share_less_than_a_page_of_any_tokenizer() -> None:
    first, second = (questions.prompt(Question("the same", "1"), number) for number in (7, 8))
    assert next(index for index, (a, b) in enumerate(zip(first, second, strict=True)) if a != b) < 16
    assert first.endswith("Question: the same\nAnswer:")


@pytest.mark.parametrize(
    ("said", "right"),
    [
        (" 2 * 6 = 12. The answer is 12.", True),
        (" The answer is 1,2", True),
        (" 12", True),
        (" 12.0", True),
        (" The answer is 12. Question: what of 13?", True),
        (" The answer is 13, not 12.", False),
        (" It is 12 or 13", False),
        ("", False),
        (" no idea", False),
    ],
)
def test_an_answer_is_judged_by_its_number(said: str, right: bool) -> None:
    assert questions.is_right(said, "12") == right


def answers(n: int, wrong: int) -> list[bool]:
    return [index >= wrong for index in range(n)]


def test_enough_questions_without_a_loss_pass() -> None:
    found = gate.judge(answers(1319, 30), answers(1319, 34), margin=0.02)
    assert found.name == "pass", found


def test_too_few_questions_are_inconclusive_even_where_none_is_lost() -> None:
    found = gate.judge(answers(200, 5), answers(200, 5), margin=0.02)
    assert found.name == "inconclusive"
    assert "too few questions: 200 questions show drops from 4." in found.why


def test_a_loss_fails_and_fails_with_few_questions_too() -> None:
    assert gate.judge(answers(1319, 30), answers(1319, 90), margin=0.02).name == "fail"
    assert gate.judge(answers(60, 2), answers(60, 30), margin=0.02).name == "fail"


def test_a_gain_is_no_failure() -> None:
    assert gate.judge(answers(1319, 90), answers(1319, 30), margin=0.03).name == "pass"


def test_a_model_that_gets_nothing_right_shows_nothing() -> None:
    found = gate.judge([False] * 5000, [False] * 5000, margin=0.02)
    assert found.name == "inconclusive"
    assert "too few right answers" in found.why


def test_the_worst_comparison_is_the_verdict() -> None:
    assert gate.together(["pass", "fail", "inconclusive"]) == "fail"
    assert gate.together(["pass", "inconclusive"]) == "inconclusive"
    assert gate.together(["pass", "pass"]) == "pass"
    assert gate.together([]) == "inconclusive"


def asked(folder: Path, wrong: dict[str, int], *, n: int = 1319, world: World | None = None) -> dict[str, Any]:
    """The gate over three arms that get this many answers wrong."""
    world = world or World()
    world.arm = Arm("A", load("long-context"), "on", True)
    arms = {
        "fast": Arm("A", load("long-context"), "on", True),
        "fallback": Arm("A", load("long-context"), "off", False),
        "bf16": Arm("B", load("bf16-kv"), "on", False),
    }
    parts: Any = world

    def take(id: str) -> Any:
        def taken() -> Any:
            world.arm = arms[id]
            return parts

        return taken if id in wrong else None

    def score(connection: Any, place: Path, context: int) -> list[bool]:
        world.loads.append(place.name)
        world.calls += 10 * arms[place.name.split("-")[0]].fires
        world.tokens += 1000 * arms[place.name.split("-")[0]].fires
        return answers(n, wrong[place.name.split("-")[0]])

    def prove(connection: Any, arm: Arm) -> Proof:
        verdict = "FIRED" if arm.fires else "NOT_FIRED"
        return judge(arm, {"verdict": verdict, "summary": "", "answers": {"status": "right"}}, 4096)

    ids: tuple[accuracy.ArmId, ...] = ("fast", "fallback", "bf16")
    places = [accuracy.Place(id, arms[id], take(id)) for id in ids]
    asks = [Question(f"q{index}", "1") for index in range(n)]
    journal = Journal(folder, accuracy.plan(asks, margin=0.02, servers={}))
    return accuracy.run(places, asks, journal, margin=0.02, prove=prove, score=score, drain_s=1.0)


def test_three_equal_arms_pass(tmp_path: Path) -> None:
    document = asked(tmp_path, {"fast": 30, "fallback": 30, "bf16": 28})
    assert document["verdict"] == "pass", document
    assert [one["arm"] for one in document["arms"]] == ["fast", "fallback", "bf16"]
    assert "100.0 %" in accuracy.lines(document)[1]


def test_what_fp8_costs_is_told_apart_from_what_the_path_costs(tmp_path: Path) -> None:
    document = asked(tmp_path, {"fast": 150, "fallback": 148, "bf16": 30})
    found = {one["asks"]: one["verdict"] for one in document["comparisons"]}
    assert found["what fp8 KV itself costs"] == "fail"
    assert found["what the fast path costs"] != "fail"
    assert document["verdict"] == "fail"


def test_without_bf16_the_gate_cannot_pass(tmp_path: Path) -> None:
    document = asked(tmp_path, {"fast": 30, "fallback": 30})
    assert document["verdict"] == "inconclusive"
    assert "not measured: bf16" in document["comparisons"][1]["why"]


def test_arms_that_were_asked_are_not_asked_again(tmp_path: Path) -> None:
    asked(tmp_path, {"fast": 30, "fallback": 30})
    world = World()
    document = asked(tmp_path, {"fast": 30, "fallback": 30, "bf16": 30}, world=world)
    assert world.loads == ["bf16-0"]
    assert document["verdict"] == "pass"


def test_a_proof_that_finds_wrong_answers_fails() -> None:
    def event(arm: str, holds: bool, status: str) -> dict[str, Any]:
        proof = {"holds": holds, "why": "WRONG: it is", "answers": {"status": status}}
        return {"event": "arm", "arm": arm, "right": answers(1319, 30), "proof": proof,
                "coverage": {"attention_work": float(arm == "fast")}}  # fmt: skip

    good = [event("fallback", True, "right"), event("bf16", True, "right")]
    assert accuracy.judge([event("fast", False, "wrong"), *good], 1319, margin=0.02)["verdict"] == "fail"
    assert accuracy.judge([event("fast", False, "right"), *good], 1319, margin=0.02)["verdict"] == "inconclusive"


def test_a_fast_arm_whose_questions_never_took_the_path_shows_nothing() -> None:
    proof = {"holds": True, "why": "", "answers": None}
    events = [
        {"event": "arm", "arm": arm, "right": answers(1319, 30), "proof": proof, "coverage": {"attention_work": 0.0}}
        for arm in ("fast", "fallback")
    ]
    found = accuracy.judge(events, 1319, margin=0.02)["comparisons"][0]
    assert (found["verdict"], found["why"]) == ("inconclusive", "no scored prompt took the fast path")


def test_a_fallback_arm_whose_questions_took_the_path_shows_nothing() -> None:
    proof = {"holds": True, "why": "", "answers": None}
    events = [
        {"event": "arm", "arm": arm, "right": answers(1319, 30), "proof": proof, "coverage": {"attention_work": work}}
        for arm, work in (("fast", 1.0), ("fallback", 0.25))
    ]
    found = accuracy.judge(events, 1319, margin=0.02)["comparisons"][0]
    assert found["verdict"] == "inconclusive" and "arm fallback: 25.0 %" in found["why"]


def test_lm_eval_is_given_the_questions_and_no_prefix_of_its_own(tmp_path: Path) -> None:
    task = json.loads(scoring.task(tmp_path / "q.jsonl", 16))
    assert (task["num_fewshot"], task["generation_kwargs"]["max_gen_toks"]) == (0, 16)
    harness = scoring.Harness(Path("python"), {}, "tok")
    words = scoring.argv(harness, "http://h:1", "m", tmp_path, 4096)
    assert "base_url=http://h:1/v1/completions,model=m" in words[words.index("--model_args") + 1]


def test_samples_are_put_in_the_questions_order_and_none_may_be_missing(tmp_path: Path) -> None:
    out = tmp_path / "out" / "model"
    out.mkdir(parents=True)
    asks = [Question("a", "1"), Question("b", "2")]
    rows = [{"doc": {"id": 1}, "resps": [[" 3"]]}, {"doc": {"id": 0}, "resps": [[" The answer is 1."]]}]
    file = out / "samples_fastfill_questions_x.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert scoring.read(tmp_path, asks) == [True, False]
    file.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(FastfillError, match="1 of 2 questions have no answer"):
        scoring.read(tmp_path, asks)


def test_the_reference_differs_from_off_in_the_cache_alone() -> None:
    off, bf16 = load("off"), load("bf16-kv")
    assert off.env == bf16.env
    assert {name for name in bf16.flags if bf16.flags[name] != off.flags[name]} == {"kv-cache-dtype"}


def test_a_server_must_be_named(tmp_path: Path) -> None:
    assert fastfill("bench", "accuracy", "--out", str(tmp_path / "x")).code == 2
    ran = fastfill("bench", "accuracy", "--out", str(tmp_path / "x"), "--url", "http://h:1", "--model", "m")
    assert ran.code == 2
    assert not (tmp_path / "x").exists()
    with pytest.raises(UsageError):
        Servers(None, None, None, "me")


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_its_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(NotReadyError, match="no_such_package is not installed") as raised:
        report.needed("no_such_package")
    words = raised.value.next_step.split()
    lock = Path(words[words.index("-r") + 1].rstrip(","))
    assert {"lm-eval", "matplotlib", "scipy", "transformers"} <= {
        line.split("==")[0] for line in lock.read_text().splitlines() if "==" in line
    }
    (tmp_path / "lm_eval.py").write_text("raise ModuleNotFoundError(\"No module named 'lm_eval'\")")
    harness = scoring.Harness(Path(sys.executable), {"PYTHONPATH": str(tmp_path)}, "tok")
    with pytest.raises(NotReadyError, match="lm-eval is not installed") as raised:
        scoring.score(harness, "http://h:1", [Question("q", "1")], tmp_path, model="m", context=64, key=None)
    assert str(lock) in raised.value.next_step


def test_an_interpreter_that_is_not_there_is_no_full_disk(tmp_path: Path) -> None:
    harness = scoring.Harness(tmp_path / "no" / "python", {}, "tok")
    with pytest.raises(NotReadyError, match="interpreter cannot be run: No such file") as raised:
        scoring.score(harness, "http://h:1", [Question("q", "1")], tmp_path, model="m", context=64, key=None)
    assert raised.value.where == str(harness.python)


@pytest.mark.parametrize(
    ("ends", "says"),
    [("sys.exit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL"), ("time.sleep(60)", "cut off")],
)
def test_how_lm_eval_ended_is_said(tmp_path: Path, ends: str, says: str) -> None:
    """One that the kernel kills for its memory was not cut off after hours."""
    (tmp_path / "lm_eval.py").write_text(f"import os, sys, time\n{ends}\n")
    seconds = 1.0 if "sleep" in ends else 60.0
    harness = scoring.Harness(Path(sys.executable), {"PYTHONPATH": str(tmp_path)}, "tok", timeout_s=seconds)
    with pytest.raises(FastfillError, match=f"lm-eval failed .{says}"):
        scoring.score(harness, "http://h:1", [Question("q", "1")], tmp_path, model="m", context=64, key=None)
