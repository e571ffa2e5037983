"""The lab: the real SGLang server on a CPU, with only the GPU kernels emulated."""
