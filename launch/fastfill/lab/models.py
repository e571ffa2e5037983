"""Tiny models with real weights and a byte-level tokenizer: seeded random ones, and one that was trained (lab/needle).

Runs in the lab's environment (torch, transformers): ``python -m fastfill.lab.models VARIANT DIR``. Never dummy weights:
SGLang's ``--load-format dummy`` makes every logit about 0, and then any output check passes.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

from fastfill.lab.needle import task

VARIANTS = {
    "dense": "Qwen3, head dim 256, 4 q heads on 2 kv heads, 2 layers",
    "dense-hd128": "Qwen3, head dim 128: the kernel is not for it",
    "dense-gqa6": "Qwen3, 12 q heads on 2 kv heads: a ratio that the kernel does not have",
    "dense-scales": "Llama, head dim 256, with k and v scales other than 1 in the checkpoint",
    "hybrid": "Qwen3.5, 3 linear-attention layers and 1 full-attention layer of head dim 256",
    "needle": "Qwen3, head dim 256, 2 layers, trained to find a key in the prompt and to answer with its value",
}
SEED = 20260730
VOCABULARY = 1024
SPECIAL = (
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAX_POSITION = 16384
SCALES = {"k_scale": 2.0, "v_scale": 0.5}
"""Of every layer of dense-scales. Powers of two: the cache then holds what it would hold without them."""


def fingerprint() -> str:
    """Changes whenever this file or the trained weights do: a written model is used again only if it is theirs."""
    return hashlib.sha256(Path(__file__).read_bytes() + task.WEIGHTS.read_bytes()).hexdigest()[:12]


def token_id(special: str) -> int:
    """The id of a special token: they end the vocabulary."""
    return VOCABULARY - len(SPECIAL) + SPECIAL.index(special)


def _dense_config(head_dim: int, heads: int, kv_heads: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 256,
        "head_dim": head_dim,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": 512,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_POSITION,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": token_id("<|endoftext|>"),
        "bos_token_id": token_id("<|endoftext|>"),
    }


def _needle_config() -> dict[str, Any]:
    return _dense_config(256, 4, 2) | {
        "hidden_size": 128,
        "intermediate_size": 256,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        task.CONFIG_KEY: task.TASK,
    }


def _scaled_config() -> dict[str, Any]:
    """SGLang loads k and v scales for a quantised checkpoint only, here one whose linear layers all stay as they are.

    And not for every model: Qwen3's attention layers are made without the quantisation's config, Llama's with it.
    """
    config = _dense_config(256, 4, 2) | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    parts = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    ignored = [f"model.layers.{layer}.{part}" for layer in range(config["num_hidden_layers"]) for part in parts]
    return config | {
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "modules_to_not_convert": ignored,
        }
    }


def _hybrid_config() -> dict[str, Any]:
    text = {
        "model_type": "qwen3_5_text",
        "hidden_size": 256,
        "head_dim": 256,
        "num_hidden_layers": 4,
        "full_attention_interval": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "intermediate_size": 512,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_POSITION,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "mamba_ssm_dtype": "float32",
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000.0,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
        },
        "partial_rotary_factor": 0.25,
        "dtype": "bfloat16",
        "eos_token_id": token_id("<|endoftext|>"),
        "tie_word_embeddings": True,
    }
    vision = {
        "model_type": "qwen3_5",
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "out_hidden_size": 256,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [],
        "hidden_act": "gelu_pytorch_tanh",
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text,
        "vision_config": vision,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "image_token_id": token_id("<|image_pad|>"),
        "video_token_id": token_id("<|video_pad|>"),
        "vision_start_token_id": token_id("<|vision_start|>"),
        "vision_end_token_id": token_id("<|vision_end|>"),
    }


def config(variant: str) -> dict[str, Any]:
    """The Hugging Face config of a variant.

    Raises:
        KeyError: No such variant.
    """
    return {
        "dense": lambda: _dense_config(256, 4, 2),
        "dense-hd128": lambda: _dense_config(128, 4, 2),
        "dense-gqa6": lambda: _dense_config(256, 12, 2),
        "dense-scales": _scaled_config,
        "hybrid": _hybrid_config,
        "needle": _needle_config,
    }[variant]()


def _words(count: int) -> list[str]:
    """Made-up words: what the ids that no input byte uses decode to, so that random answers can be read."""
    syllables = [consonant + vowel for consonant in "bdfghklmnprstvz" for vowel in "aeiou"]
    return [f"\u0120{first}{second}" for first in syllables for second in syllables[::5] if first != second][:count]


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer: any text goes in, one id a byte; and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = _words(VOCABULARY - len(alphabet) - len(SPECIAL))
    vocabulary = {token: index for index, token in enumerate([*alphabet, *words, *SPECIAL])}
    # Without merges no input is ever encoded to a word: they come out of the model only.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": MAX_POSITION,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_processors(folder: Path) -> None:
    # The Qwen3.5 class is a vision class: its processor is made even when only text comes in.
    image = {
        "size": {"shortest_edge": 65536, "longest_edge": 16777216},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "processor_class": "Qwen3VLProcessor",
    }
    _write_json(folder / "preprocessor_config.json", {**image, "image_processor_type": "Qwen2VLImageProcessor"})
    _write_json(folder / "video_preprocessor_config.json", {**image, "video_processor_type": "Qwen3VLVideoProcessor"})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _fill(name: str, parameter: Any, seed: int, *, lone_attention: bool) -> None:
    """Give one parameter its values: they depend on the seed and the name alone.

    With ``lone_attention`` the model's only full-attention layer speaks louder than the others: at equal weights a
    kernel without the causal mask moves the log probabilities by 0.06, less than the tests' tolerance.
    """
    import zlib

    import torch

    generator = torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))
    noise = torch.randn(parameter.shape, generator=generator)
    if name.endswith("A_log"):
        values = torch.linspace(0.0, math.log(8.0), parameter.numel()).reshape(parameter.shape)
    elif name.endswith("dt_bias"):
        values = torch.linspace(-4.0, -1.0, parameter.numel()).reshape(parameter.shape)
    elif "conv1d" in name:
        values = noise * 0.5
    elif parameter.dim() >= 2:
        values = noise * 0.1
    else:
        # A norm's own start (1, or 0 where the model adds 1), a little off, so that leaving it out shows.
        values = parameter.float() + noise * 0.05
    if lone_attention and name.endswith("self_attn.o_proj.weight"):
        values *= 8.0
    if lone_attention and name.endswith("self_attn.q_norm.weight"):
        values += 0.5
    parameter.copy_(values.to(parameter.dtype))


def _add_scales(file: Path, layers: int) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    for layer in range(layers):
        for name, value in SCALES.items():
            tensors[f"model.layers.{layer}.self_attn.{name[0]}_proj.{name}"] = torch.tensor(value)
    save_file(tensors, file, metadata={"format": "pt"})


def write_model(variant: str, folder: Path, seed: int = SEED) -> None:
    """Write config, weights (safetensors, bf16) and tokenizer of a variant into an existing folder.

    The same seed gives the same bytes; the needle model's weights are those of the repository.
    """
    description = config(variant)
    _write_json(folder / "config.json", description)
    if variant == "needle":
        shutil.copyfile(task.WEIGHTS, folder / "model.safetensors")
    else:
        _write_weights(description, folder, seed)
    _write_json(folder / "generation_config.json", {"eos_token_id": token_id("<|endoftext|>")})
    write_tokenizer(folder)
    if "vision_config" in description:
        _write_processors(folder)


def _write_weights(description: dict[str, Any], folder: Path, seed: int) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    plain = {key: value for key, value in description.items() if key != "quantization_config"}
    _write_json(folder / "config.json", plain)
    loader = AutoModelForImageTextToText if "vision_config" in description else AutoModelForCausalLM
    torch.manual_seed(seed)
    model = loader.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _fill(name, parameter, seed, lone_attention="vision_config" in description)
    model.save_pretrained(folder)
    if "quantization_config" in description:
        _add_scales(folder / "model.safetensors", description["num_hidden_layers"])
    # transformers rewrites the config in its own version's words; SGLang reads ours.
    _write_json(folder / "config.json", description)


def main() -> None:
    """``python -m fastfill.lab.models VARIANT DIR``."""
    variant, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    write_model(variant, folder)


if __name__ == "__main__":
    main()
