#!/bin/sh
# Builds the fastfill wheel into /dist with one interpreter's pip and the tools that tools.sh installed. Run inside an image
# build, in the source's folder:  wheel.sh PYTHON
set -eu
PYTHONPATH=/tmp/build "$1" -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
  --wheel-dir /dist .
