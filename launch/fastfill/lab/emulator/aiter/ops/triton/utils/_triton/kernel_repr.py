"""aiter.ops.triton.utils._triton.kernel_repr: names of Triton kernels, for SGLang 0.5.23's own ones."""

from __future__ import annotations


def make_kernel_repr(base_name, config_keys=None, name_key=None):
    """A function that names a specialisation; here by its base name alone."""
    return lambda _specialization: base_name
