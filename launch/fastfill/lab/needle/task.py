"""The task that the needle model was trained on, in token ids: a key somewhere in the filler is followed by its value.

A prompt that ends with a key is answered by that key's value. The ranges go into the model's config.json as
``fastfill_retrieval``, so that a proof can pose the task to a server of this model.
"""

from __future__ import annotations

from pathlib import Path

TASK: dict[str, list[int]] = {"filler": [10, 250], "keys": [256, 384], "values": [640, 768]}
"""Half-open ranges of token ids; all are ordinary ids of the lab's tokenizer."""
CONFIG_KEY = "fastfill_retrieval"
WEIGHTS = Path(__file__).with_name("model.safetensors")
"""Written by bench/train_needle.py; training.json beside it says how it was trained and how often it is right."""
