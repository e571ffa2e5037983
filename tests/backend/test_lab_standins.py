"""The CPU stand-ins against the code whose place they take, and the tiny models against Hugging Face's classes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from emulated import run_python
from sgl_kernel import gdn

from fastfill.lab import models

FP8 = torch.float8_e4m3fn


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
def test_the_gated_delta_rule_is_hugging_faces(tokens: int) -> None:
    from transformers.models.qwen3_5 import modeling_qwen3_5 as theirs

    torch.manual_seed(tokens)
    heads_k, heads_v, dim = 2, 4, 64
    q, k = torch.randn(1, tokens, heads_k, dim), torch.randn(1, tokens, heads_k, dim)
    v = torch.randn(1, tokens, heads_v, dim)
    decay, strength = gdn.fused_gdn_gating_cpu(
        torch.randn(heads_v), torch.randn(tokens, heads_v), torch.randn(tokens, heads_v), torch.randn(heads_v)
    )
    start = torch.randn(3, heads_v, dim, dim)
    pool = start.clone()
    ours, _, at_chunks = gdn.chunk_gated_delta_rule_cpu(
        q, k, v, decay, strength, pool, torch.tensor([2]), torch.tensor([0, tokens])
    )
    expected, state = theirs.torch_recurrent_gated_delta_rule(
        q.repeat_interleave(2, 2),
        k.repeat_interleave(2, 2),
        v,
        g=decay,
        beta=strength,
        initial_state=start[2:3].transpose(-1, -2),
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    torch.testing.assert_close(ours, expected, atol=2e-5, rtol=2e-4)
    torch.testing.assert_close(pool[2], state[0].transpose(-1, -2), atol=2e-5, rtol=2e-4)
    assert torch.equal(pool[:2], start[:2])
    assert at_chunks.shape == (1, -(-tokens // 64), heads_v, dim, dim)
    assert torch.equal(at_chunks[0, 0], start[2])


def test_packed_sequences_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 90, 2, 64), torch.randn(1, 90, 2, 64), torch.randn(1, 90, 4, 64)
    g, beta = -torch.rand(1, 90, 4), torch.rand(1, 90, 4)
    together = gdn.chunk_gated_delta_rule_cpu(
        q, k, v, g, beta, torch.zeros(2, 4, 64, 64), torch.tensor([0, 1]), torch.tensor([0, 20, 90])
    )[0]
    alone = gdn.chunk_gated_delta_rule_cpu(
        q[:, 20:], k[:, 20:], v[:, 20:], g[:, 20:], beta[:, 20:], torch.zeros(1, 4, 64, 64), None, torch.tensor([0, 70])
    )[0]
    torch.testing.assert_close(together[:, 20:], alone)


def test_a_convolution_goes_on_where_prefill_left_off() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(12, 40), torch.randn(12, 4)
    states = torch.zeros(3, 12, 3)
    first = gdn.causal_conv1d_fn_cpu(
        x[:, :39], weight, None, "silu", states, torch.tensor([False]), torch.tensor([1]), torch.tensor([0, 39])
    )
    last = gdn.causal_conv1d_update_cpu(x[:, 39][None], states, weight, None, "silu", torch.tensor([1]))
    padded = torch.nn.functional.pad(x, (3, 0))[None]
    whole = torch.nn.functional.silu(torch.nn.functional.conv1d(padded, weight[:, None], groups=12)[0])
    torch.testing.assert_close(torch.cat([first, last.T], 1), whole)


@pytest.mark.parametrize("scale", [None, torch.tensor(0.5), torch.tensor([0.5])])
def test_the_cache_write_puts_each_token_in_its_slot(scale: torch.Tensor | None) -> None:
    from sglang.srt.layers.attention import aiter_backend

    torch.manual_seed(0)
    k, v = torch.randn(3, 2, 8).bfloat16(), torch.randn(3, 2, 8).bfloat16()
    before = k.clone()
    k_cache, v_cache = (torch.zeros(4, 16, 2, 8).to(FP8) for _ in range(2))
    slots = torch.tensor([5, -1, 40])
    aiter_backend.launch_reshape_and_cache_flash(k, v, k_cache, v_cache, slots, k_scale=scale, v_scale=scale)
    divisor = 1.0 if scale is None else 0.5
    flat = k_cache.view(-1, 2, 8)
    for token, slot in ((0, 5), (2, 40)):
        expected = (k[token].float() / divisor).to(FP8)
        assert torch.equal(flat[slot].float(), expected.float())
    written = {int(slot) for slot in flat.float().abs().sum((1, 2)).nonzero()[:, 0]}
    assert written == {5, 40}
    assert torch.equal(k, before)


def test_the_quantiser_saturates_and_gives_the_scale_back() -> None:
    from fastfill_standins.quant import scaled_fp8_quant

    x = torch.tensor([[0.5, -900.0], [3.0, 100.0]]).bfloat16()
    out, scale = scaled_fp8_quant(x, torch.tensor([2.0]))
    assert (out.float() * scale).tolist() == [[0.5, -896.0], [3.0, 96.0]]
    out, scale = scaled_fp8_quant(x, num_token_padding=4)
    assert out.shape == (4, 2) and float(scale) == pytest.approx(900 / 448, rel=0.01)
    _, scales = scaled_fp8_quant(x, use_per_token_if_dynamic=True)
    assert scales.shape == (2, 1)


def test_the_backend_believes_in_gfx950_alone_among_sglangs_modules() -> None:
    from sglang.srt import utils
    from sglang.srt.layers.attention import aiter_backend

    assert aiter_backend.is_gfx95_supported() is True
    assert utils.is_gfx95_supported() is False


def test_the_model_with_scales_is_read_by_hugging_face_without_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    models.write_model("dense-scales", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    scales = {name: float(tensor) for name, tensor in tensors.items() if name.endswith("_scale")}
    assert len(scales) == 2 * len(models.SCALES)
    assert {name.rpartition(".")[2]: value for name, value in scales.items()} == models.SCALES
    # In a process of its own: one that has loaded SGLang leaves the rotary frequencies uninitialised.
    argv = [sys.executable, "-m", "fastfill.lab.reference", str(tmp_path)]
    ran = subprocess.run(argv, input=json.dumps([list(range(40))]), capture_output=True, text=True, check=True)
    (given,) = json.loads(ran.stdout)
    assert len(given) == 39 and torch.tensor(given).std() > 0.5


def test_the_reference_refuses_a_process_that_has_loaded_sglang(tmp_path: Path) -> None:
    from fastfill.lab import reference

    with pytest.raises(RuntimeError, match="process of its own"):
        reference.prompt_logprobs(tmp_path, [[1, 2]])


# Hugging Face's own classes would quantise the one that says it is quantised.
@pytest.mark.parametrize("variant", [variant for variant in models.VARIANTS if variant != "dense-scales"])
def test_a_model_is_real_whole_and_the_same_each_time(variant: str, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        models.write_model(variant, folder)
    digests = [
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
        for folder in folders
    ]
    assert digests[0] == digests[1]
    # In a process of its own: importing SGLang, which other tests here do, patches transformers' loading.
    answer = run_python(
        "import json, sys, torch\n"
        "from pathlib import Path\n"
        "from transformers import AutoModelForCausalLM, AutoModelForImageTextToText\n"
        "loader = AutoModelForImageTextToText if sys.argv[1:] == ['hybrid'] else AutoModelForCausalLM\n"
        f"model, report = loader.from_pretrained({str(folders[0])!r}, dtype=torch.float32, output_loading_info=True)\n"
        "with torch.no_grad(): spread = model(torch.arange(40)[None]).logits[0].std().item()\n"
        "print(json.dumps([sorted(report['missing_keys']), sorted(report['unexpected_keys']), spread]))",
        variant,
    )
    assert answer.returncode == 0, answer.stderr
    missing, unexpected, spread = json.loads(answer.stdout.splitlines()[-1])
    assert missing == unexpected == []
    # Dummy weights give logits of about 0, which agree with everything.
    assert spread > 1.0


def test_text_goes_in_and_comes_out(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    models.write_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "Größe: 10 µm\n\t{'a': [1, 2]}"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=True, add_generation_prompt=True)
    ids = chat if isinstance(chat, list) else chat["input_ids"]
    assert ids[0] == models.token_id("<|im_start|>")
    assert tokenizer.decode(ids) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode([300, 301]).split() != []
    assert len(tokenizer) == models.VOCABULARY
