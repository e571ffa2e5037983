"""The reference for a lab server's answers: the same checkpoint in fp32, by Hugging Face's own code.

Runs in the lab's environment: ``python -m fastfill.lab.reference MODEL_DIR``, prompts on stdin, log probabilities on
stdout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def prompt_logprobs(model: Path, prompts: list[list[int]]) -> list[list[float]]:
    """Log probability of each prompt's tokens but the first, given those before.

    Args:
        model: A checkpoint folder.
        prompts: Token ids.

    Returns:
        For each prompt one value fewer than it has tokens.

    Raises:
        RuntimeError: SGLang is loaded in this process: it changes how transformers makes a model, and the rotary
            frequencies then stay uninitialised memory (seen with transformers 5 and SGLang 0.5.16).
    """
    if "sglang" in sys.modules:
        raise RuntimeError("SGLang is loaded here: run the reference in a process of its own")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    config = AutoConfig.from_pretrained(model)
    # Its weights are not quantised; what it says of quantisation makes SGLang load scales of the KV cache.
    config.__dict__.pop("quantization_config", None)
    vision = "vision_config" in json.loads((model / "config.json").read_text(encoding="utf-8"))
    loader = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    network = loader.from_pretrained(model, config=config, dtype=torch.float32)
    values = []
    with torch.no_grad():
        for ids in prompts:
            logits = network(torch.tensor([ids])).logits[0].float()
            chosen = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])
            values.append(chosen[:, 0].tolist())
    return values


def main() -> None:
    """See the module's text."""
    answer = prompt_logprobs(Path(sys.argv[1]), json.load(sys.stdin))
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
