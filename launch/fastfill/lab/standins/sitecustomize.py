"""Python runs this at start: it puts the lab's post-import hooks in place. See README.md beside it."""

from fastfill_standins import install

install()
