"""A draft model prefills each prompt too, with layers of its own: they are counted apart from the target's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from client import Client, prompt
from test_prove_live import prove
from test_routes import LOGPROB_BOUND, delta

from fastfill.lab import packages, prepare
from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

Start = Callable[[LabSpec], LabServer]


def drafts(model: str) -> LabSpec:
    """The dense model, with one of the lab's models to draft for it: a chain of two tokens, as MTP's usual flags."""
    folder = prepare.model_folder(model, prepare.interpreter_of(LabSpec().stack)[0], packages.link())
    flags = ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", str(folder))
    steps = ("--speculative-num-steps", "2", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3")
    return LabSpec(flags=(*flags, *steps), allow=("all",))


def proven(server: LabServer) -> tuple[int, dict[str, Any], dict[str, Any]]:
    code, document = prove(server, "--prompt-tokens", "300", "--load", "2", "--log", str(server.log_path))
    (rank,) = document["ranks"]
    assert (rank["expected_calls"], rank["observed_calls"]) == (2, 2)
    assert document["answers"]["status"] == "right", document["answers"]
    return code, document, rank["draft"]


@pytest.mark.server("draft")
def test_a_draft_model_on_the_path_is_counted_apart(lab_server: Start) -> None:
    server = lab_server(drafts("dense"))
    code, document, draft = proven(server)
    assert (code, document["verdict"]) == (0, "FIRED"), document
    assert (draft["expected_calls"], draft["observed_calls"], draft["passes"]) == (2, 2, 1)
    # What the target says of accepted drafts is what it would have said without: Hugging Face's code has none.
    ids = prompt(61)
    answer = Client(server).generate(ids, new=12, return_logprob=True)
    ours = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
    (truth,) = server.reference_logprobs([ids + answer["output_ids"]])
    assert delta(ours, truth[-12:]) <= LOGPROB_BOUND


@pytest.mark.server("draft off the path")
def test_a_draft_model_off_the_path_is_partial_and_named(lab_server: Start) -> None:
    code, document, draft = proven(lab_server(drafts("dense-gqa6")))
    assert (code, document["verdict"], document["reason"]["id"]) == (1, "PARTIAL", "gqa_ratio"), document
    assert (draft["expected_calls"], draft["observed_calls"], draft["reasons"]) == (2, 0, {"gqa_ratio": 2})
    assert "draft model 0 of 2" in document["summary"]
