"""The stack file: one place for everything that decides how a server behaves, and what is derived from it."""
