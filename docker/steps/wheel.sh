#!/bin/sh
# Builds the fastfill wheel into /dist, in an environment of its own. Run inside an image build, in the source's folder.
set -eu
python3 -m venv /tmp/build
/tmp/build/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/build.txt
/tmp/build/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /dist .
rm -rf /tmp/build
