"""Why the fast path will or will not fire: facts read first (model, release, aiter, flags), then decided on, purely."""
