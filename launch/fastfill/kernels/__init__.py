"""What an installed aiter holds of the fp8 head-dim-256 forward kernel: read, then judged."""
