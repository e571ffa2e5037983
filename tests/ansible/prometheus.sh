#!/usr/bin/env bash
# Prometheus and promtool from Debian's package, unpacked and not installed: prints the folder that holds them.
set -euo pipefail
place=${XDG_CACHE_HOME:-$HOME/.cache}/fastfill/prometheus
if [ ! -x "$place/usr/bin/promtool" ]; then
  mkdir -p "$place.part"
  (
    cd "$place.part"
    apt-get -qq download prometheus >&2 || {
      # A fresh machine has no package lists yet.
      apt-get -qq update >&2 && apt-get -qq download prometheus >&2
    }
  ) || {
    printf 'prometheus: the package cannot be had\n  next: as root, on a Debian machine with a network\n' >&2
    exit 4
  }
  dpkg -x "$place.part"/prometheus_*.deb "$place.part"
  rm -rf "$place" "$place.part"/*.deb
  mv "$place.part" "$place"
fi
printf '%s\n' "$place/usr/bin"
