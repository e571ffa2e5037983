#!/bin/sh
# Installs what fastfill needs beside the SGLang of one interpreter. Run inside an image build:  dependencies.sh PYTHON
#
# Of the hashed lock /requirements/serve.txt only what the image lacks is installed: its own packages, torch above all,
# keep their versions.
set -eu
# An image's interpreter is ours to add to, also where its distribution marks it as managed (PEP 668).
export PIP_BREAK_SYSTEM_PACKAGES=1
python=$1
installed() {
  "$python" -c 'from importlib.metadata import distributions as d; print(*sorted(f"{x.name}=={x.version}" for x in d()), sep="\n")'
}
before=$(installed)
"$python" - /requirements/serve.txt >/tmp/missing.txt <<'PYTHON'
import re
import sys
from importlib.metadata import distributions

present = {re.sub(r"[-_.]+", "-", item.metadata["Name"]).lower() for item in distributions()}
keep = False
for line in open(sys.argv[1], encoding="utf-8"):
    if not line.startswith((" ", "#")):
        name = re.match(r"[A-Za-z0-9._-]+", line)
        keep = bool(name) and re.sub(r"[-_.]+", "-", name[0]).lower() not in present
    if keep:
        sys.stdout.write(line)
PYTHON
if [ -s /tmp/missing.txt ]; then
  "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --no-deps -r /tmp/missing.txt
fi
after=$(installed)
printf '%s\n' "$before" | while IFS= read -r line; do
  printf '%s\n' "$after" | grep -qxF -- "$line" || { echo "error: installing fastfill changed $line" >&2; exit 1; }
done
rm -f /tmp/missing.txt
