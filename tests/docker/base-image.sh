#!/usr/bin/env bash
# Makes a base image from Debian's packages, for machines that reach no registry. Needs DOCKER_HOST (engine.sh up).
#
#   tests/docker/base-image.sh NAME[:TAG] [PACKAGE...]
#
# The image stands in for one of that name: it is Debian bookworm, minimal, with the named packages. Where this machine
# trusts a certificate authority of its own, the image trusts it too, as a company's base images do. Nothing happens
# when an image of that name is there already.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
name=$1
shift
! docker image inspect "$name" >/dev/null 2>&1 || exit 0

mirror=$("$(dirname "$0")/engine.sh" mirror)
include=ca-certificates
for package in "$@"; do include+=,$package; done
# shellcheck disable=SC2016 # mmdebstrap's own shell sets $1
trust='own=/usr/local/share/ca-certificates; mkdir -p "$1$own"
  if ls $own/*.crt >/dev/null 2>&1; then cp $own/*.crt "$1$own"; chroot "$1" update-ca-certificates >/dev/null; fi'
printf 'base-image: making %s from %s\n' "$name" "$mirror" >&2
mmdebstrap --quiet --variant=minbase --include="$include" --aptopt='Acquire::Check-Valid-Until "false"' \
  --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="$trust; rm -rf \"\$1\"/var/lib/apt/lists" bookworm - "$mirror" |
  docker import --change 'CMD ["bash"]' --change 'LABEL stand-in=true' - "$name" >/dev/null
