#!/bin/sh
# Installs what builds the fastfill wheel into /tmp/build, apart from one interpreter's own packages. Run inside an image
# build:  tools.sh PYTHON
set -eu
# An image's interpreter is ours to add to, also where its distribution marks it as managed (PEP 668).
export PIP_BREAK_SYSTEM_PACKAGES=1
"$1" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile --require-hashes --no-deps \
  --target /tmp/build -r /requirements/build.txt
