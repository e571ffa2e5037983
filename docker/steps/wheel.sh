#!/bin/sh
# Builds the fastfill wheel into /dist with one interpreter's pip, whose packages stay as they are. Run inside an image
# build, in the source's folder:  wheel.sh PYTHON
set -eu
export PIP_BREAK_SYSTEM_PACKAGES=1
"$1" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile --require-hashes --no-deps \
  --target /tmp/build -r requirements/build.txt
PYTHONPATH=/tmp/build "$1" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir /dist .
rm -rf /tmp/build
