"""fastfill's code inside the SGLang server: gate, quantise, prefill, witness, plugin.

Importing this package imports nothing heavy: torch, triton, prometheus_client and SGLang are imported by the modules
that need them, when they need them.
"""
