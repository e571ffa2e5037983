"""What ``fastfill plan`` knows: SGLang's prefill scheduler as a model, traces, times, and what to recommend."""
