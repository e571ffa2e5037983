#!/bin/sh
# Puts fastfill beside the SGLang of one interpreter, and patches that SGLang. Run inside an image build, after
# dependencies.sh:
#
#   install.sh PYTHON [SGLANG_VERSION]
#
# Reads the wheel in /dist.
set -eu
# An image's interpreter is ours to add to, also where its distribution marks it as managed (PEP 668).
export PIP_BREAK_SYSTEM_PACKAGES=1
python=$1
if [ $# -gt 1 ]; then
  found=$("$python" -c 'from importlib.metadata import version; print(version("sglang").split("+")[0])')
  [ "$found" = "$2" ] || {
    printf 'error: the base image has SGLang %s, the stack pins %s\n  next:  %s\n' "$found" "$2" \
      "correct base.tag in docker/stacks, then: fastfill pins resolve" >&2
    exit 1
  }
fi
"$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-index --no-deps /dist/fastfill-*.whl
"$python" -m fastfill patch apply
"$python" -m fastfill --version
