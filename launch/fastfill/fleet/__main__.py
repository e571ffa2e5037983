"""``python -m fastfill.fleet``: what runs on hosts as one file."""

import sys

from fastfill.fleet.cli import main

sys.exit(main())
