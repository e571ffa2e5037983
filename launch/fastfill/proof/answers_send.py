"""Asks the server the same twice, on the fast path and from token 0 on the fallback, and hunts for needles.

Never against the fast side's own cached prefix: that repeat reads the keys and values which the suspect pass wrote, and
agrees with it however wrong it was. Each request has a cache namespace of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fastfill.proof import needle
from fastfill.proof.answers_seen import AnswersEvidence, Guesses, Hidden, Pair, Said, Search
from fastfill.proof.control import judge_control
from fastfill.proof.probe import new_rid, prompt, request
from fastfill.proof.sent import Attempt
from fastfill.proof.server import Answer
from fastfill.proof.side import fallback_side, fast_side, hopeless
from fastfill.proof.transport import TimedOut
from fastfill.proof.verdict import targets
from fastfill.proof.wire import Retrieval
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX

if TYPE_CHECKING:
    from fastfill.proof.evidence import Evidence
    from fastfill.proof.visit import Visit

FAST_PREFIX = "fastfill-answer-"
FALLBACK_PREFIX = f"{FALLBACK_RID_PREFIX}answer-"
TOKENS = 8
"""Generated tokens of a comparison: later ones read the keys and values of every prompt row, the first only its own."""
TOP = 20
WORDS = 40
"""Generated tokens of an answer in plain words: five numbers of four digits and their commas, a token each."""
SHORT = 61
"""A prompt inside the kernel's first tile, of no round length."""

_chance = random.SystemRandom()


class Question(NamedTuple):
    """One request's body without its id, and how it is sent; ``tokens`` is None where only the server knows."""

    body: dict[str, Any]
    tokens: int | None
    chat: bool = False


def lengths(longest: int) -> tuple[int, ...]:
    """The prompts' lengths in tokens: the probe's own, a third of it, and one below the kernel's tile."""
    return tuple(sorted({longest, max(2, longest // 3), min(SHORT, longest)}, reverse=True))


def cost(visit: Visit, evidence: Evidence) -> int:
    """Prompt tokens that the comparison takes where nothing is sent again: both sides, then one hunt for needles."""
    places = len(targets(evidence.server.dp_size))
    searches = len(needle.DEPTHS) if _task(evidence) else 2
    return (2 * sum(lengths(visit.size.tokens)) + searches * visit.size.tokens) * places


def compare(visit: Visit, evidence: Evidence) -> Evidence:
    """Compare, once every probe fired and where the server lets a request ask for the fallback."""
    from fastfill.proof.visit import fired

    if not fired(evidence) or judge_control(evidence).finding:
        return evidence
    if not evidence.controls:
        why = evidence.no_control or "no time was left"
        return evidence.model_copy(update={"answers": AnswersEvidence(cannot=f"no fallback to compare with: {why}")})
    spoiled: list[Attempt] = []
    pairs: list[Pair] = []
    searches: list[Search] = []
    places = targets(evidence.server.dp_size)
    for place in places:
        for tokens in lengths(visit.size.tokens):
            question = _logprob_question(visit.pool, tokens)
            sides = _both(visit, question, place, spoiled)
            if sides is None:
                break
            pairs.append(Pair(fast=sides[0], fallback=sides[1]))
        if any(one.answer != "refused" and hopeless(one) for one in spoiled):
            break
        searches += _hunt(visit, _task(evidence), place, spoiled)
    refused = next((one.detail for one in spoiled if one.answer == "refused"), "")
    found = AnswersEvidence(
        prompts=len(places) * len(lengths(visit.size.tokens)),
        pairs=tuple(pairs),
        searches=tuple(searches),
        spoiled=tuple(spoiled),
        no_search=f"the server refused the question: {refused}" if refused and not searches else "",
    )
    _tell(visit, found)
    return evidence.model_copy(update={"answers": found})


def _tell(visit: Visit, found: AnswersEvidence) -> None:
    from fastfill.proof.answers import judge_answers

    for check in judge_answers(found).checks:
        outcome = {"right": "ok", "wrong": "fail"}.get(check.status, "note")
        visit.talk.check(f"answers, {check.name}", outcome, check.detail)


def _task(evidence: Evidence) -> Retrieval | None:
    status = evidence.status_before
    return status.ranks[0].model.retrieval if status and status.ranks else None


def _both(visit: Visit, question: Question, place: int | None, spoiled: list[Attempt]) -> tuple[Said, Said] | None:
    fast = _ask(visit, FAST_PREFIX, question, place, fast_side, spoiled)
    if fast is None:
        return None
    fallback = _ask(visit, FALLBACK_PREFIX, question, place, fallback_side, spoiled)
    return None if fallback is None else (fast, fallback)


def _hunt(visit: Visit, task: Retrieval | None, place: int | None, spoiled: list[Attempt]) -> list[Search]:
    """One search a depth, or one for all in plain words; once more where a single needle was lost on the fast side."""
    searches = _round(visit, task, place, spoiled)
    lost = sum(
        not mine and other
        for one in searches
        if one.fallback is not None
        for mine, other in zip(one.found(one.fast), one.found(one.fallback), strict=True)
    )
    return searches + _round(visit, task, place, spoiled) if lost == 1 else searches


def _round(visit: Visit, task: Retrieval | None, place: int | None, spoiled: list[Attempt]) -> list[Search]:
    searches: list[Search] = []
    for question, hidden in _questions(visit, task):
        fast = _ask(visit, FAST_PREFIX, question, place, fast_side, spoiled)
        if fast is None:
            continue
        search = Search(kind="trained" if task else "words", hidden=hidden, fast=fast)
        if not all(search.found(fast)):
            fallback = _ask(visit, FALLBACK_PREFIX, question, place, fallback_side, spoiled)
            search = search.model_copy(update={"fallback": fallback})
        searches.append(search)
    return searches


def _questions(visit: Visit, task: Retrieval | None) -> list[tuple[Question, tuple[Hidden, ...]]]:
    tokens = visit.size.tokens
    if task is None:
        text = needle.text_prompt(round(tokens * visit.server.characters_per_token()), _chance)
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": text.text}],
            "max_tokens": WORDS,
            "temperature": 0.0,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        return [(Question(body, None, chat=True), text.hidden)]
    found: list[tuple[Question, tuple[Hidden, ...]]] = []
    for depth in needle.DEPTHS:
        posed = needle.token_prompt(task, max(tokens, needle.shortest_token_prompt()), depth, _chance)
        found.append((Question(_generate(posed.ids, 1), len(posed.ids)), (posed.hidden,)))
    return found


def _logprob_question(pool: tuple[int, ...], tokens: int) -> Question:
    body = _generate(prompt(pool, tokens), TOKENS) | {"return_logprob": True, "top_logprobs_num": TOP}
    return Question(body, tokens)


def _generate(ids: list[int], new: int) -> dict[str, Any]:
    body = request("", ids)
    body["sampling_params"] |= {"max_new_tokens": new, "ignore_eos": True}
    return body


def _ask(
    visit: Visit,
    prefix: str,
    question: Question,
    place: int | None,
    unfit: Callable[[Attempt], str],
    spoiled: list[Attempt],
) -> Said | None:
    """Send a question until its passes are those of the side that is meant; None where they never were."""
    name = "fallback" if prefix == FALLBACK_PREFIX else "fast path"
    for number in range(1, visit.plan.attempts + 1):
        if visit.deadline.passed():
            break
        with visit.talk.working(f"answers, {name}: {question.tokens or visit.size.tokens} tokens"):
            said = _send(visit, new_rid(prefix), question, place)
        why = unfit(said.attempt)
        if not why:
            return said
        spoiled.append(said.attempt)
        if hopeless(said.attempt):
            break
        visit.talk.check("answers", "retry", f"{name}: {why}")
        time.sleep(min(0.2 * number, visit.deadline.remaining()))
    return None


def _send(visit: Visit, rid: str, question: Question, place: int | None) -> Said:
    from fastfill.proof.visit import with_passes, withdrawing

    server, deadline = visit.server, visit.deadline
    body = question.body | {"rid": rid, "extra_key": rid} | ({} if place is None else {"routed_dp_rank": place})
    attempt = Attempt(rid=rid, dp=place, prompt_tokens=question.tokens or 0, answer="answered")
    try:
        ask = server.chat if question.chat else server.generate
        with withdrawing(server, rid):
            answer: Answer = ask(body, timeout_s=max(0.1, deadline.remaining()))
    except TimedOut as error:
        return Said(attempt=attempt.model_copy(update={"answer": "timed_out", "detail": error.what}))
    if answer.refusal:
        return Said(attempt=attempt.model_copy(update={"answer": "refused", "detail": answer.refusal}))
    attempt = attempt.model_copy(update={"prompt_tokens": question.tokens or answer.prompt_tokens or 0})
    attempt = with_passes(attempt, server, deadline)
    if question.chat:
        parts = (answer.said.get("reasoning_content"), answer.said.get("content"))
        return Said(attempt=attempt, text=" ".join(part for part in parts if isinstance(part, str)))
    return Said(attempt=attempt, tokens=_tokens(answer.said), top=top_of(answer.said))


def _tokens(said: dict[str, Any]) -> tuple[int, ...]:
    ids = said.get("output_ids")
    return tuple(id for id in ids if isinstance(id, int)) if isinstance(ids, list) else ()


def top_of(said: dict[str, Any]) -> tuple[Guesses, ...]:
    """SGLang's ``output_top_logprobs``: for each token a list of [logprob, id, text]."""
    listed = said.get("meta_info", {}).get("output_top_logprobs")
    if not isinstance(listed, list):
        return ()
    return tuple(tuple((int(entry[1]), _finite(entry[0])) for entry in place or ()) for place in listed)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e20 else None
