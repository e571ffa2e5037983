"""Everything that `fastfill serve` decides before SGLang starts: profile, flags, memory, checks, command."""
