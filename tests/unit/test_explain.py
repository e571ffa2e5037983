"""``fastfill explain`` beside its golden table: scales, aiter's folder, a live server, bad input, speed."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiter_tree
import amdgpu_elf
import host_tree
import pytest
from pytest_httpserver import HTTPServer

from fastfill import __main__
from fastfill.explaining import aiter, releases
from fastfill.explaining.facts import rank_heads
from fastfill.explaining.launch import Launch, from_flags, from_server_info
from fastfill.explaining.scheduler import first_chunk_share, schedule, token_limit
from fastfill.kernels import revisions
from fastfill.kernels.revisions import CAUSAL_GROUP, SYMBOLS

DATA = Path(__file__).parent.parent / "data"
DENSE = DATA / "configs/made-dense.json"
FLAG = ("--env", "SGLANG_AITER_FMHA_FP8_ASM=1")
FP8 = ("--kv-cache-dtype", "fp8_e4m3")
Capture = pytest.CaptureFixture[str]


def run(monkeypatch: pytest.MonkeyPatch, capsys: Capture, *argv: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``fastfill explain ARGV``."""
    monkeypatch.setattr("sys.argv", ["fastfill", "explain", *map(str, argv)])
    with pytest.raises(SystemExit) as stopped:
        __main__.main()
    out = capsys.readouterr()
    return int(stopped.value.code or 0), out.out, out.err


def document(monkeypatch: pytest.MonkeyPatch, capsys: Capture, *argv: object) -> dict[str, Any]:
    """The JSON document of ``fastfill explain ARGV``."""
    _, out, err = run(monkeypatch, capsys, "--json", *argv)
    assert err == ""
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def checkpoint(folder: Path, scales: dict[str, bytes], *, dtype: str = "F32", quantised: bool = True) -> Path:
    """A checkpoint of the dense model whose second weight file holds these scales."""
    host_tree.checkpoint(folder, files=1)
    config = json.loads(DENSE.read_text())
    if quantised:
        config["quantization_config"] = {"quant_method": "quark"}
    (folder / "config.json").write_text(json.dumps(config))
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"] |= dict.fromkeys(scales, "scales.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    host_tree.safetensors(folder / "scales.safetensors", scales, dtype)
    return folder


ONE, HALF = struct.pack("<f", 1.0), struct.pack("<f", 0.5)
PREFIX = "model.layers.1.self_attn."


@pytest.mark.parametrize(
    ("release", "scales", "verdict"),
    [
        ("0.5.20", {PREFIX + "k_proj.k_scale": ONE, PREFIX + "v_proj.v_scale": ONE}, "fires"),
        ("0.5.20", {PREFIX + "k_proj.k_scale": ONE, PREFIX + "v_proj.v_scale": HALF}, "wrong"),
        ("0.5.20", {PREFIX + "k_scale": HALF}, "wrong"),
        ("0.5.17", {PREFIX + "k_scale": HALF}, "conditional"),  # this name is loaded from 0.5.19 on
        ("0.5.23", {PREFIX + "k_proj.output_scale": HALF}, "fires"),  # Quark's name is ignored
        ("0.5.23", {}, "fires"),
        ("0.5.20", {PREFIX + "k_scale": HALF + HALF}, "unknown"),
    ],
)
def test_scales_other_than_1_give_wrong_answers_upstream(
    release: str,
    scales: dict[str, bytes],
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    model = checkpoint(tmp_path / "m", scales)
    argv = ("--model", model, "--sglang", release, "--aiter", "c16d44b93a", "--", *FP8)
    assert document(monkeypatch, capsys, *argv)["verdict"] == verdict


@pytest.mark.parametrize(("dtype", "half"), [("F32", HALF), ("F16", struct.pack("<e", 0.5)), ("BF16", HALF[2:])])
def test_scales_are_read_in_each_width(
    dtype: str, half: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    model = checkpoint(tmp_path / "m", {PREFIX + "k_scale": half}, dtype=dtype)
    found = document(monkeypatch, capsys, "--model", model, "--sglang", "0.5.20", "--aiter", "c16d44b93a", "--", *FP8)
    assert found["hazards"][0]["detail"] == f"{PREFIX}k_scale = 0.5"


def test_our_stack_takes_any_scales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    model = checkpoint(tmp_path / "m", {PREFIX + "k_proj.k_scale": HALF})
    found = document(monkeypatch, capsys, "--model", model, *FLAG, "--", *FP8, "--disable-radix-cache")
    assert (found["verdict"], found["hazards"]) == ("conditional", [])


@pytest.mark.parametrize("release", ["0.5.17", "0.5.23"])
@pytest.mark.parametrize("name", ["k_proj.k_scale", "k_scale", "v_proj.output_scale", "kv_scale"])
def test_llamas_loader_takes_every_name_and_qwen3s_none(
    release: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Both remap the names that quantisers use; Qwen3's attention layers have nowhere to put them."""
    model = checkpoint(tmp_path / "m", {PREFIX + name: HALF, PREFIX + "q_proj.output_scale": HALF})
    config = json.loads((model / "config.json").read_text()) | {"layer_types": ["full_attention"] * 4}
    argv = ("--model", model, "--sglang", release, "--aiter", "c16d44b93a", "--", *FP8)
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    found = document(monkeypatch, capsys, *argv)
    assert (found["verdict"], found["reason"]) == ("wrong", "kv_scales")
    assert found["hazards"][0]["detail"] == f"{PREFIX}{name} = 0.5"
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3ForCausalLM"]}))
    assert document(monkeypatch, capsys, *argv)["verdict"] in ("fires", "conditional")


def test_scales_for_a_loader_that_was_not_read_are_unknown_unless_all_are_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for value, verdict in ((ONE, "fires"), (HALF, "unknown")):
        model = checkpoint(tmp_path / verdict, {PREFIX + "k_scale": value})
        config = json.loads((model / "config.json").read_text()) | {"architectures": ["Glm4MoeForCausalLM"]}
        (model / "config.json").write_text(json.dumps(config | {"layer_types": ["full_attention"] * 4}))
        argv = ("--model", model, "--sglang", "0.5.20", "--aiter", "c16d44b93a", "--", *FP8)
        assert document(monkeypatch, capsys, *argv)["verdict"] == verdict


def test_scales_of_weights_that_never_came_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    model = checkpoint(tmp_path / "m", {PREFIX + "k_scale": ONE})
    (model / "scales.safetensors").unlink()
    found = document(monkeypatch, capsys, "--model", model, "--sglang", "0.5.20", "--aiter", "c16d44b93a", "--", *FP8)
    assert (found["verdict"], found["reason"]) == ("unknown", "kv_scales")


@pytest.mark.parametrize(
    ("parts", "revision", "stock", "ours"),
    [
        ({}, None, "fires", "fires"),
        ({}, "D", "fires", "fires"),
        ({}, "B", "wrong", "never"),
        ({"objects": {}}, None, "crashes", "never"),
        ({"table": aiter_tree.HEADER}, None, "crashes", "never"),
        ({"gate": aiter_tree.OLD_GATE}, None, "crashes", "never"),
        ({"module": b"\x7fELF stale"}, None, "crashes", "never"),
    ],
)
def test_aiter_as_a_folder(
    parts: dict[str, Any],
    revision: str | None,
    stock: str,
    ours: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    if revision is not None:
        content = amdgpu_elf.build(SYMBOLS[CAUSAL_GROUP], code=revision.encode())
        digest = __import__("hashlib").sha256(content).hexdigest()
        monkeypatch.setitem(revisions._BY_HASH, digest, ((revision, CAUSAL_GROUP),))
        parts = {"objects": aiter_tree.whole() | {CAUSAL_GROUP: content}}
    root = aiter_tree.make(tmp_path / "aiter", **parts)
    flags = ("--", *FP8, "--chunked-prefill-size", "-1", "--disable-radix-cache")
    argv = ("--model", DENSE, "--aiter", root)
    assert document(monkeypatch, capsys, *argv, "--sglang", "0.5.20", *flags)["verdict"] == stock
    assert document(monkeypatch, capsys, *argv, *FLAG, *flags)["verdict"] == ours


def test_an_unknown_revision_may_or_may_not_have_the_paged_kernel(tmp_path: Path) -> None:
    assert aiter.of(str(aiter_tree.make(tmp_path / "aiter"))).paged is None
    assert aiter.of("c16d44b93a").paged is False
    assert aiter.of("acf8fdf9").paged is True


def info(**changes: Any) -> dict[str, Any]:
    """What a server answers at /server_info, as far as it matters."""
    return {
        "version": "0.5.16",
        "model_path": "/elsewhere",
        "tp_size": 1,
        "dp_size": 1,
        "attention_backend": "aiter",
        "kv_cache_dtype": "fp8_e4m3",
        "page_size": 16,
        "chunked_prefill_size": 4096,
        "max_prefill_tokens": 16384,
        "disable_radix_cache": True,
        **changes,
    }


def status(*failed: str, path: str = "on", **changes: Any) -> dict[str, Any]:
    """What our plugin answers at /fastfill/status, on two ranks of which the second fails these conditions."""
    ids = ("backend_not_aiter", "flag_off", "arch_not_gfx950", "kernel_missing", "kernel_broken", "ck_disabled")
    ids += ("head_dim_not_256", "gqa_ratio", "kv_dtype_not_fp8")
    ranks = [
        {
            "rank": {"pp": 0, "dp": 0, "tp": tp},
            "pid": 10 + tp,
            "sglang": "0.5.16",
            "patched": True,
            "flag": "flag_off" not in failed,
            "backend": "AiterAttnBackend",
            "deployment": {
                id: {"status": "fail" if tp and id in failed else "pass", "value": f"{id} {tp}"} for id in ids
            },
            "model": {"attention_layers": 2},
            **changes,
        }
        for tp in (0, 1)
    ]
    return {"schema": "fastfill.status/1", "version": "0.1.0", "path": {"path": path}, "ranks": ranks}


def serve(server: HTTPServer, about: dict[str, Any], says: dict[str, Any] | None) -> str:
    """Answer the two questions; None for a server without our plugin."""
    server.expect_request("/server_info").respond_with_json(about)
    answer = {} if says is None else says
    server.expect_request("/fastfill/status").respond_with_json(answer, status=404 if says is None else 200)
    return server.url_for("").rstrip("/")


@pytest.mark.parametrize(
    ("about", "says", "verdict", "reason"),
    [
        (info(), status(), "conditional", "prefix_chunk"),
        (info(chunked_prefill_size=-1), status(), "fires", ""),
        (info(), status("kernel_broken"), "never", "kernel_broken"),
        (info(), status(path="off"), "never", "operator_off"),
        (info(), status("flag_off"), "never", "flag_off"),
        (info(), status(forced_fallback_allowed=True), "conditional", "prefix_chunk"),
        (info(), None, "never", "flag_off"),
        (info(version="0.5.20"), None, "unknown", "arch_not_gfx950"),
        (info(version="0.5.20", kv_cache_dtype="auto"), None, "never", "kv_dtype_not_fp8"),
        (info(version="0.5.20", attention_backend="triton"), None, "never", "backend_not_aiter"),
        (info(version="0.5.20", pp_size=2), None, "never", "unsupported_topology"),
        (info(version="9.9.9"), status(), "unknown", "prefix_chunk"),
    ],
)
def test_a_live_server(
    about: dict[str, Any],
    says: dict[str, Any] | None,
    verdict: str,
    reason: str,
    httpserver: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    url = serve(httpserver, about, says)
    found = document(monkeypatch, capsys, "--url", url, "--model", DENSE)
    assert (found["verdict"], found["reason"]) == (verdict, reason)


def test_a_live_servers_chunk_is_not_divided_again(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    url = serve(httpserver, info(tp_size=8, dp_size=8, enable_dp_attention=True, chunked_prefill_size=2048), status())
    found = document(monkeypatch, capsys, "--url", url, "--model", DENSE)
    assert found["scheduler"]["chunked_prefill_size"] == 2048


def test_a_live_server_and_what_it_cannot_tell(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    url = serve(httpserver, info(version="0.5.20"), None)
    argv = ("--url", url, "--model", DENSE, "--aiter", "c16d44b93a", "--env", "SGLANG_USE_AITER=1")
    assert document(monkeypatch, capsys, *argv)["verdict"] == "fires"
    found = document(monkeypatch, capsys, "--url", url, "--aiter", "c16d44b93a", "--env", "SGLANG_USE_AITER=1")
    assert (found["verdict"], found["reason"]) == ("unknown", "head_dim_not_256")
    assert "/elsewhere, is not on this machine" in found["model"]["missing"]["head_dim_not_256"]


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        ((), 2, "nothing to explain"),
        (("--model", "no/such-model"), 2, "hf download no/such-model"),
        (("--model", "/no/such/folder"), 2, "/no/such/folder"),
        (("--model", DATA / "configs/made-contradiction.json"), 2, "3 layer types for 4 layers"),
        (("--model", DENSE, "--stack", "sglang-9"), 2, "one of: sglang-0.5.16"),
        (("--model", DENSE, "--stack", "sglang-0.5.16", "--sglang", "0.5.16"), 2, "give one of them"),
        (("--model", DENSE, "--env", "FLAG"), 2, "NAME=VALUE"),
        (("--model", DENSE, "--aiter", "/no/aiter"), 2, "/no/aiter"),
        (("--model", DENSE, "--tp", "4", "--", "--tp-size", "8"), 2, "contradict"),
        (("--model", DENSE, "--", "--chunked-prefill-size", "large"), 2, "not a whole number"),
        (("--model", DENSE, "--", "--page-size", "1", "2"), 2, "takes one value"),
        (("--model", DENSE, "--", "--cuda-graph-config", "{"), 2, "is not JSON"),
        (("--model", DENSE, "--", "stray"), 2, "stray"),
        (("--url", "http://127.0.0.1:9", "--", "--tp", "2"), 2, "tells its own"),
        (("--model", DENSE, "--api-key-file", DENSE), 2, "--api-key-file has no effect here"),
        (("--url", "127.0.0.1:9"), 2, "http://"),
        (("--url", "http://127.0.0.1:9"), 4, "127.0.0.1:9"),
    ],
)
def test_bad_input(
    argv: tuple[object, ...], code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    found, out, err = run(monkeypatch, capsys, *argv)
    assert (found, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


def test_what_answers_is_no_sglang(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    httpserver.expect_request("/server_info").respond_with_data("<html>hello")
    code, _, err = run(monkeypatch, capsys, "--url", httpserver.url_for("").rstrip("/"))
    assert code == 2
    assert "no SGLang server" in err


def test_the_text_names_what_does_not_pass_and_how_to_mend_it(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    code, out, _ = run(monkeypatch, capsys, "--model", DENSE, "--prompt", "60000", "--", *FP8)
    assert code == 1
    assert out.startswith("never: the path is not taken, because of flag_off")
    assert "fix: start with a profile that sets SGLANG_AITER_FMHA_FP8_ASM=1" in out
    assert "60000: 0.0 %" in out
    assert max(map(len, out.splitlines())) < 200


@pytest.mark.parametrize("columns", [60, 80])
def test_the_text_is_folded_where_the_width_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, columns: int
) -> None:
    argv = ("--model", DENSE, "--", *FP8)
    monkeypatch.delenv("COLUMNS", raising=False)
    _, whole, _ = run(monkeypatch, capsys, *argv)
    assert max(map(len, whole.splitlines())) > 104, "into a file or a pipe nothing is folded"
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run(monkeypatch, capsys, *argv)
    assert max(map(len, out.splitlines())) <= columns
    assert out.split() == whole.split(), "no word is cut, and none is lost"


def test_it_answers_at_once_and_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['fastfill', 'explain', '--model', sys.argv[1], '--sglang', '0.5.20']\n"
        "from fastfill.__main__ import main\n"
        "try: main()\n"
        "finally: print(sorted({'torch', 'httpx', 'rich', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    ours, libraries = [], []
    for _ in range(3):
        used, said = _processor_seconds(code, str(DENSE))
        assert said == "[]"
        ours.append(used)
        libraries.append(_processor_seconds("import typer, pydantic")[0])
    # Under half a second on an idle machine; a busy one slows both.
    assert min(ours) < 4 * min(libraries)


def _processor_seconds(code: str, *arguments: str) -> tuple[float, str]:
    """What a process took, and its stderr."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stderr.strip()


@pytest.mark.parametrize(
    ("q", "kv", "ranks", "heads"),
    [
        (32, 2, 1, (32, 2)),
        (32, 2, 2, (16, 1)),
        (32, 2, 8, (4, 1)),
        (24, 4, 8, (3, 1)),
        (32, 2, 3, None),
        (32, 6, 4, None),
        (8, 3, 2, None),
        (12, 3, 4, None),
    ],
)
def test_heads_of_a_rank(q: int, kv: int, ranks: int, heads: tuple[int, int] | None) -> None:
    assert rank_heads(q, kv, ranks) == heads


def test_the_limit_of_the_offsets() -> None:
    assert token_limit(32) == 262_144
    assert token_limit(16) == 524_288
    assert token_limit(3) * 3 * 512 >= 1 << 32 > (token_limit(3) - 1) * 3 * 512


@pytest.mark.parametrize(
    ("gib", "chunk"), [(24, 2048), (48, 4096), (80, 8192), (128, 8192), (160, 16384), (288, 16384)]
)
def test_the_default_chunk_by_memory(gib: int, chunk: int) -> None:
    assert schedule(Launch(), gib << 10, None).chunk == chunk


def test_the_share_of_the_first_chunk() -> None:
    assert round(100 * first_chunk_share(60_000, 16_384), 1) == 7.5
    assert first_chunk_share(1000, 16_384) == first_chunk_share(60_000, None) == 1.0


def test_flags_and_the_servers_answer_read_alike() -> None:
    words = (
        "--tp 4 --dp-size 2 --enable-dp-attention --attention-backend aiter --kv-cache-dtype fp8_e4m3 --page-size 16"
    )
    words += " --chunked-prefill-size 8192 --max-prefill-tokens 32768 --enable-mixed-chunk --disable-radix-cache"
    words += " --speculative-algorithm EAGLE --context-length 65536"
    flags = from_flags(words.split(), tp=None, dp=None)
    answer = from_server_info(
        {
            "tp_size": 4,
            "dp_size": 2,
            "enable_dp_attention": True,
            "attention_backend": "aiter",
            "kv_cache_dtype": "fp8_e4m3",
            "page_size": 16,
            "chunked_prefill_size": 8192,
            "max_prefill_tokens": 32768,
            "enable_mixed_chunk": True,
            "disable_radix_cache": True,
            "speculative_algorithm": "EAGLE",
            "context_length": 65536,
            "disaggregation_mode": "null",
        }
    )
    assert flags == Launch(**{**{field: getattr(answer, field) for field in Launch.__slots__}, "chunk_resolved": False})


def test_every_release_between_the_first_and_the_last_is_known() -> None:
    known = "0.5.12.post1 0.5.13 0.5.13.post1 0.5.14 0.5.15 0.5.15.post1 0.5.16 0.5.17 0.5.18 0.5.19 0.5.20 0.5.21"
    for version in [*known.split(), "0.5.22", "0.5.23"]:
        found = releases.release(version)
        assert found.path == ("none" if version < "0.5.17" else "builtin")
        assert found.source
    assert releases.release("v0.5.20") == releases.release("0.5.20")


def test_a_commit_is_known_by_its_beginning_and_not_by_less() -> None:
    assert releases.aiter("5c0fece96d").revision == "D"
    assert releases.aiter("9127c94abcdef").revision == "none"
    assert releases.aiter("5c0fec").revision == "unknown"
    assert releases.aiter("v0.1.2").revision == "unknown"
