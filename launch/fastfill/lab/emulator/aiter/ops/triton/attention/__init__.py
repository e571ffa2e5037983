"""Emulated: see aiter/__init__.py."""
