"""Trains the needle model: ``PYTHONPATH=launch python bench/train_needle.py --out DIR``, on a GPU.

Needs torch and transformers; writes ``model.safetensors`` (bf16) and ``training.json`` (seed, versions, accuracy).
What made it learn: embeddings of standard deviation 0.5, an untied output, few keys and values, and a curriculum that
starts with 32 tokens. Each stage lasts a share of ``--seconds``, so two runs on different machines give different
weights; the accuracy is what is claimed, not the bytes.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from fastfill.lab import models
from fastfill.lab.needle.task import TASK

IGNORED = -100
PEAK_RATE = 1e-3
TESTED = (64, 512, 1024, 2048, 4096)


class Stage(NamedTuple):
    """A part of the curriculum; ``share`` is its part of the whole time."""

    length: int
    pairs: int
    batch: int
    share: float


STAGES = (
    Stage(32, 4, 512, 0.40),
    Stage(64, 8, 512, 0.13),
    Stage(256, 24, 128, 0.12),
    Stage(1024, 48, 32, 0.13),
    Stage(4096, 64, 8, 0.22),
)


def draw(batch: int, length: int, pairs: int, device: str, dense: float = 0.5) -> tuple[Any, Any]:
    """Prompts and their targets, both int64 of shape (batch, length).

    Pairs stand at even places of the first half, queries in the second half. In a share ``dense`` of the prompts the
    pairs stand side by side, where a value's neighbour on either side is a key. Targets are the values after queries,
    IGNORED elsewhere.
    """
    tokens = torch.randint(*TASK["filler"], (batch, length), device=device)
    targets = torch.full_like(tokens, IGNORED)
    half, rows = length // 2, torch.arange(batch, device=device)[:, None]
    first_key, last_key = TASK["keys"]
    keys = torch.rand(batch, last_key - first_key, device=device).argsort(1)[:, :pairs] + first_key
    values = torch.randint(*TASK["values"], (batch, pairs), device=device)
    slots = (half - 2) // 2
    scattered = torch.rand(batch, slots, device=device).argsort(1)[:, :pairs]
    start = (torch.rand(batch, 1, device=device) * (slots - pairs + 1)).long()
    together = start + torch.arange(pairs, device=device)
    places = 2 * torch.where(torch.rand(batch, 1, device=device) < dense, together, scattered)
    tokens[rows, places], tokens[rows, places + 1] = keys, values
    asked = min(pairs, (length - half - 2) // 4)
    queries = 2 * torch.rand(batch, (length - half - 2) // 2, device=device).argsort(1)[:, :asked] + half
    chosen = torch.rand(batch, pairs, device=device).argsort(1)[:, :asked]
    tokens[rows, queries], tokens[rows, queries + 1] = keys.gather(1, chosen), values.gather(1, chosen)
    targets[rows, queries + 1] = values.gather(1, chosen)
    return tokens, targets


def build(seed: int, device: str) -> Any:
    """The untrained model, fp32."""
    description = models.config("needle")
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(
        description["model_type"], **{key: value for key, value in description.items() if key != "model_type"}
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(device)
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0, 0.5)
    return model


def accuracy(model: Any, length: int, device: str, prompts: int = 8) -> float:
    """The share of queries that are answered right."""
    pairs = min(32, length // 8)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        tokens, targets = draw(prompts, length, pairs, device)
        guessed = model(tokens).logits[:, :-1].argmax(-1)
    asked = targets[:, 1:] != IGNORED
    return float((guessed[asked] == targets[:, 1:][asked]).float().mean())


def train(model: Any, seconds: float, device: str) -> int:
    """Run the curriculum; returns the number of steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    begun, steps, until = time.monotonic(), 0, 0.0
    for stage in STAGES:
        until += stage.share * seconds
        while time.monotonic() - begun < until:
            tokens, targets = draw(stage.batch, stage.length, stage.pairs, device)
            with torch.autocast(device, torch.bfloat16):
                logits = model(tokens).logits
                loss = torch.nn.functional.cross_entropy(
                    logits[:, :-1].flatten(0, 1).float(), targets[:, 1:].flatten(), ignore_index=IGNORED
                )
            elapsed = (time.monotonic() - begun) / seconds
            for group in optimizer.param_groups:
                group["lr"] = PEAK_RATE * min(1.0, (steps + 1) / 300) * max(0.05, 1.0 - elapsed)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            steps += 1
            if steps % 500 == 0:
                print(f"{elapsed:4.0%} length {stage.length} step {steps} loss {loss.item():.4f}", flush=True)
        print(f"after length {stage.length}: {[round(accuracy(model, n, device), 3) for n in TESTED]}", flush=True)
    return steps


def main() -> None:
    """Train, measure in bf16, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=models.SEED)
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=N", help="config values to try instead")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tried = {name: int(value) for name, value in (pair.split("=") for pair in asked.set)}
    usual = models.config
    models.config = lambda variant: usual(variant) | tried
    model = build(asked.seed, device)
    steps = train(model, asked.seconds, device)
    model = model.to(torch.bfloat16)
    prompts = 64 if device == "cuda" else 2
    reached = {length: round(accuracy(model, length, device, prompts), 4) for length in TESTED}
    asked.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(asked.out)
    record = {
        "seed": asked.seed,
        "seconds": asked.seconds,
        "steps": steps,
        "tried": tried,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "accuracy": reached,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    (asked.out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
