"""The operator's side of fastfill: build, start, explain and prove the fp8 head-dim-256 prefill path."""

__version__ = "0.1.0"
