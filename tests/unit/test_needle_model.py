"""The needle model's weights, as they are in the repository, fit its config and what is said of their training."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

from fastfill.lab import models
from fastfill.lab.needle import task
from fastfill.proof.wire import Retrieval

TRAINING = json.loads(task.WEIGHTS.with_name("training.json").read_text())


def header() -> dict[str, Any]:
    """The names, types and shapes of a safetensors file: eight bytes of length, then JSON."""
    data = task.WEIGHTS.read_bytes()
    entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: entry for name, entry in entries.items() if name != "__metadata__"}


def test_the_weights_fit_the_config() -> None:
    entries, config = header(), models.config("needle")
    assert {entry["dtype"] for entry in entries.values()} == {"BF16"}
    assert sum(math.prod(entry["shape"]) for entry in entries.values()) == TRAINING["parameters"]
    heads, width, dim = config["num_attention_heads"], config["hidden_size"], config["head_dim"]
    assert entries["model.layers.0.self_attn.q_proj.weight"]["shape"] == [heads * dim, width]
    assert entries["lm_head.weight"]["shape"] == [config["vocab_size"], width]
    assert f"model.layers.{config['num_hidden_layers'] - 1}.mlp.up_proj.weight" in entries
    assert f"model.layers.{config['num_hidden_layers']}.mlp.up_proj.weight" not in entries
    assert task.WEIGHTS.stat().st_size < 3_000_000


def test_it_was_trained_with_the_shape_that_is_served_and_is_right() -> None:
    config = models.config("needle")
    assert {name: config[name] for name in TRAINING["tried"]} == TRAINING["tried"]
    assert TRAINING["seed"] == models.SEED
    assert set(TRAINING["accuracy"]) >= {"512", "2048", "4096"}
    assert min(TRAINING["accuracy"].values()) >= 0.999


def test_its_task_is_in_ordinary_ids_and_in_its_config() -> None:
    asked = Retrieval.model_validate(models.config("needle")[task.CONFIG_KEY])
    ranges = sorted([asked.filler, asked.keys, asked.values])
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(ranges))
    assert max(end for _, end in ranges) <= models.VOCABULARY - len(models.SPECIAL)
    assert models.config("dense").get(task.CONFIG_KEY) is None
