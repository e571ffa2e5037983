"""Hierarchical-cache transfers (srt/mem_cache/memory_pool_host.py): importable, raising when called."""

from . import __getattr__ as __getattr__
