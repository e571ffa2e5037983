"""The negative control where the server lets no request ask for the fallback, behind several HTTP processes."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from test_prove_live import prove

from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

Start = Callable[[LabSpec], LabServer]


@pytest.mark.server("no forced fallback")
def test_a_cached_companion_takes_a_fresh_prompt_off_the_path(lab_server: Start) -> None:
    flags = ("--tokenizer-worker-num", "2")
    server = lab_server(LabSpec(env={"FASTFILL_ALLOW_FORCED_FALLBACK": "0"}, flags=flags))
    for _ in range(10):
        page = httpx.get(f"{server.url}/fastfill/status", timeout=20, trust_env=False)
        assert page.status_code == 200, "whichever process answers"
    code, document = prove(server)
    assert (code, document["verdict"]) == (0, "FIRED"), document
    assert document["control"]["status"] == "passed"
    assert "beside a cached prompt: prefix_radix" in document["control"]["detail"]
    assert document["answers"]["status"] == "cannot_say"
    code, document = prove(server, "--light")
    assert (code, document["control"]["status"]) == (0, "not_possible")
