"""A host as the operating system shows it: read (machine, facts), then judged (checks)."""
