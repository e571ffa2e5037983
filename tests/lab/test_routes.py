"""Which prompts take the fast path in the real server, and that every route answers right."""

from __future__ import annotations

import concurrent.futures
import uuid
from collections.abc import Callable

import pytest
from client import Client, fired, prompt, reasons, work_of

from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

Start = Callable[[LabSpec], LabServer]

PLAIN = LabSpec()
NO_RADIX = LabSpec(flags=("--disable-radix-cache",))
CHUNKS = LabSpec(flags=("--chunked-prefill-size", "128"), allow=("all",))
LOGPROB_BOUND = 0.15
"""Mean |Δlogprob| against Hugging Face in fp32: about 0.09 on every right route, 0.5 and more for a wrong kernel."""


@pytest.fixture
def plain(lab_server: Start) -> Client:
    return Client(lab_server(PLAIN))


@pytest.mark.server("plain")
def test_a_fresh_prompt_fires(plain: Client) -> None:
    passes = plain.run(prompt(300))
    assert fired(passes) == [True]
    assert passes[0]["extend"] == [300]
    assert passes[0]["calls"][0]["count"] == 2, "two attention layers"


@pytest.mark.server("plain")
def test_an_exact_repeat_does_not(plain: Client) -> None:
    ids = prompt(300)
    assert fired(plain.run(ids)) == [True]
    again = plain.run(ids)
    assert fired(again) == [False]
    assert reasons(again) == [["prefix_radix"]]
    assert again[0]["prefix"] == [288], "whole pages of 16; the last token is always computed"


@pytest.mark.server("plain")
def test_a_fresh_and_a_cached_prompt_in_one_batch_do_not(plain: Client) -> None:
    cached = prompt(200)
    plain.run(cached)
    batch = f"batch-{uuid.uuid4().hex}"
    rids = [f"{batch}-{number}" for number in range(2)]
    plain.generate([prompt(60), cached], rid=rids)
    together = [p for p in plain.passes(batch) if set(rids) <= set(p["rids"])]
    assert together, "the scheduler put both in one batch"
    assert fired(together) == [False]
    assert reasons(together) == [["prefix_radix"]]


@pytest.mark.server("plain")
def test_two_fresh_prompts_in_one_batch_do(plain: Client) -> None:
    rids = [f"batch-{uuid.uuid4().hex}" for _ in range(2)]
    plain.together([prompt(60), prompt(70)], rids)
    passes = plain.passes(rids[0])
    assert passes[0]["extend"] == [60, 70]
    assert fired(passes) == [True]


@pytest.mark.server("plain")
def test_a_forced_fallback_does_not(plain: Client) -> None:
    passes = plain.run(prompt(100), rid="fastfill-fallback-")
    assert fired(passes) == [False]
    assert reasons(passes) == [["forced_fallback"]]


@pytest.mark.server("plain")
def test_text_goes_in_through_the_openai_api(plain: Client) -> None:
    answer = plain.http.post(
        "/v1/chat/completions",
        json={"model": "lab", "messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 8},
    ).json()
    assert answer["usage"]["prompt_tokens"] > 20
    assert answer["usage"]["completion_tokens"] > 0
    rid = f"text-{uuid.uuid4().hex}"
    plain.http.post("/v1/completions", json={"model": "lab", "prompt": "word " * 50, "max_tokens": 2, "rid": rid})
    assert fired(plain.passes(rid)) == [True]


@pytest.mark.server("plain")
def test_sglangs_own_metrics_survive_the_plugin(plain: Client) -> None:
    before = sum(plain.counters("sglang:prompt_tokens_total").values())
    plain.run(prompt(123))
    after = sum(plain.counters("sglang:prompt_tokens_total").values())
    assert after - before == 123


@pytest.mark.server("plain")
def test_counters_say_what_the_ring_says(plain: Client) -> None:
    def asm() -> float:
        counted = plain.counters("fastfill:prefill_attention_calls_total")
        return sum(v for labels, v in counted.items() if ("kernel", "asm") in labels)

    before, work = asm(), plain.work()
    plain.run(prompt(64))
    assert asm() - before == 2
    assert plain.work()["asm", ""] - work["asm", ""] == 2 * 64**2 / 2


@pytest.mark.server("plain")
def test_every_hook_is_attached(plain: Client) -> None:
    attached = plain.counters("fastfill:hook_attached")
    assert len(attached) >= 7
    assert set(attached.values()) == {1.0}


@pytest.mark.server("plain")
def test_a_long_prompt_is_quick(plain: Client) -> None:
    answer = plain.generate(prompt(4096), new=1)
    assert answer["meta_info"]["e2e_latency"] < 5


@pytest.mark.server("plain")
def test_the_server_is_small(plain: Client, lab_server: Start) -> None:
    used = lab_server(PLAIN).memory_mb()
    assert used is not None
    assert used < 2500


def delta(ours: list[float], theirs: list[float]) -> float:
    return sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(ours)


@pytest.mark.server("plain")
def test_fast_path_and_fallback_agree_with_hugging_face(plain: Client, lab_server: Start) -> None:
    ids = prompt(200, seed=3)
    (truth,) = lab_server(PLAIN).reference_logprobs([ids])
    rid = f"logprobs-{uuid.uuid4().hex}"
    fast = plain.prompt_logprobs(ids, rid=rid)
    assert fired(plain.passes(rid)) == [True]
    rid = f"fastfill-fallback-{uuid.uuid4().hex}"
    fallback = plain.prompt_logprobs(ids, rid=rid)
    assert reasons(plain.passes(rid)) == [["forced_fallback"]]
    print(f"mean |Δlogprob|: fast {delta(fast, truth):.3f}, fallback {delta(fallback, truth):.3f}")
    assert delta(fast, truth) <= LOGPROB_BOUND
    assert delta(fallback, truth) <= LOGPROB_BOUND


@pytest.mark.server("no-radix")
def test_without_the_radix_cache_a_repeat_fires_again(lab_server: Start) -> None:
    client = Client(lab_server(NO_RADIX))
    ids = prompt(300)
    assert fired(client.run(ids)) == [True]
    assert fired(client.run(ids)) == [True]


@pytest.mark.server("chunks")
def test_chunks_after_the_first_do_not_fire_and_are_right(lab_server: Start) -> None:
    server = lab_server(CHUNKS)
    client = Client(server)
    passes = client.run(prompt(300))
    assert [p["extend"] for p in passes] == [[128], [128], [44]]
    assert [p["prefix"] for p in passes] == [[0], [128], [256]]
    assert fired(passes) == [True, False, False]
    assert reasons(passes)[1:] == [["prefix_chunk"], ["prefix_chunk"]]
    ids = prompt(200, seed=3)
    (truth,) = server.reference_logprobs([ids])
    assert delta(client.prompt_logprobs(ids), truth) <= LOGPROB_BOUND


@pytest.mark.server("noncausal")
def test_a_wrong_kernel_is_outside_the_bound(lab_server: Start) -> None:
    """The bound is able to fail: a non-causal kernel exceeds it."""
    server = lab_server(LabSpec(env={"AITER_EMULATOR_FAULT": "noncausal"}))
    ids = prompt(200, seed=3)
    (truth,) = server.reference_logprobs([ids])
    assert delta(Client(server).prompt_logprobs(ids), truth) > 2 * LOGPROB_BOUND


@pytest.mark.server("off")
def test_flag_off_is_the_unpatched_server_token_for_token(lab_server: Start) -> None:
    prompts = [prompt(length, seed=length) for length in (5, 64, 300, 700)]
    client = Client(lab_server(LabSpec(profile="off")))
    ours = [client.tokens(ids, new=24) for ids in prompts]
    passes = client.run(prompt(100))
    assert fired(passes) == [False]
    assert reasons(passes) == [["flag_off"]]
    assert not [key for key in client.work() if key[0] == "asm"]
    theirs = Client(lab_server(LabSpec(profile="off", stack="sglang-0.5.16-unpatched")))
    assert ours == [theirs.tokens(ids, new=24) for ids in prompts]


@pytest.mark.parametrize(
    ("chunk", "expected", "firing"),
    [
        pytest.param("512", 0.126, 1, marks=pytest.mark.server("chunk 512"), id="chunk 512"),
        pytest.param("-1", 1.0, 8, marks=pytest.mark.server("no chunks"), id="no chunks"),
    ],
)
def test_eight_prompts_of_480_tokens(lab_server: Start, chunk: str, expected: float, firing: int) -> None:
    """A chunk of about the prompt's own size keeps a lone prompt whole and loses most of the path under load."""
    flags = ("--chunked-prefill-size", chunk, "--max-prefill-tokens", "512", "--disable-radix-cache")
    client = Client(lab_server(LabSpec(flags=flags, allow=("all",))))
    before = client.work()
    rids = [f"load-{uuid.uuid4().hex}" for _ in range(8)]
    # As production sends them: with ignore_eos and the radix cache off SGLang admits one prompt past the budget.
    first = client.together([prompt(480) for _ in rids], rids, new=1, ignore_eos=False)
    passes = {p["pass"]: p for rid in rids for p in client.passes(rid)}
    assert sum(fired(list(passes.values()))) == firing
    assert len(passes) == 8
    own = work_of(client.passes(first))
    spent = {key: value - before.get(key, 0) - own.get(key, 0) for key, value in client.work().items()}
    share = spent["asm", ""] / sum(spent.values())
    print(f"chunk {chunk}: {share:.1%} of the attention work")
    assert share == pytest.approx(expected, abs=0.001)


@pytest.mark.server("hybrid")
def test_the_hybrid_model_fires(lab_server: Start) -> None:
    server = lab_server(LabSpec(model="hybrid"))
    client = Client(server)
    passes = client.run(prompt(300))
    assert fired(passes) == [True]
    assert passes[0]["calls"][0]["count"] == 1, "one full-attention layer of four"
    ids = prompt(200, seed=3)
    (truth,) = server.reference_logprobs([ids])
    assert delta(client.prompt_logprobs(ids), truth) <= LOGPROB_BOUND


@pytest.mark.server("tp2")
def test_both_ranks_of_tensor_parallel_2_fire(lab_server: Start) -> None:
    client = Client(lab_server(LabSpec(tp=2)))
    rid = f"tp-{uuid.uuid4().hex}"
    client.generate(prompt(300), rid=rid)
    ranks = client.http.get("/fastfill/passes", params={"rid": rid}).json()["ranks"]
    assert [entry["rank"]["tp"] for entry in ranks] == [0, 1]
    assert len({entry["pid"] for entry in ranks}) == 2
    assert all(fired(entry["passes"]) == [True] for entry in ranks)
    assert {dict(labels)["tp_rank"] for labels in client.counters("fastfill:prefill_attention_calls_total")} == {
        "0",
        "1",
    }


@pytest.mark.server("plain")
def test_many_clients_at_once_keep_their_own_passes(plain: Client) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda length: plain.run(prompt(length)), range(40, 120, 10)))
    for passes, length in zip(runs, range(40, 120, 10), strict=True):
        assert length in passes[0]["extend"]
