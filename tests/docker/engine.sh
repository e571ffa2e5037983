#!/usr/bin/env bash
# A Docker engine with BuildKit and Compose v2 for the tests, on a Debian 12 machine without one. Run as root.
#
#   eval "$(tests/docker/engine.sh up)"   install and start it; says on stdout: export DOCKER_HOST=...
#   tests/docker/engine.sh down           stop the engine that `up` started, and nothing else
#   tests/docker/engine.sh install        only the packages
#   tests/docker/engine.sh packages NAME/SUITE...   these packages, which other tests need; nothing of them starts
#   tests/docker/engine.sh status         exit 0 if it answers
#   tests/docker/engine.sh mirror         where this machine takes Debian's packages from
#
# Where this machine runs an engine already, `up` names that one: two would fight over bridges and iptables. Exit 4: this
# machine cannot run one (not root, no Debian 12); 1: it should have worked.
#
# State lies in FASTFILL_ENGINE (default: <cache>/fastfill/engine) and is kept by `down`: images and the build cache
# make the next run short. Bookworm's own engine (20.10) has no heredocs, so docker's packages come from trixie, pinned
# so that nothing else is upgraded; runc is bookworm's, because trixie's needs a newer C library.
set -euo pipefail

state=${FASTFILL_ENGINE:-${FASTFILL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fastfill}/engine}
socket=$state/run/docker.sock
pidfile=$state/run/docker.pid
declare -A package=(
  [dockerd]=docker.io/trixie [docker]=docker-cli/trixie ["docker buildx"]=docker-buildx/trixie
  ["docker compose"]=docker-compose/trixie [containerd]=containerd/trixie [runc]=runc/bookworm [iptables]=iptables/bookworm
  [mmdebstrap]=mmdebstrap/bookworm [docker-registry]=docker-registry/bookworm
)

say() { printf 'engine: %s\n' "$*" >&2; }
fail() { say "$1"; [ -z "${2:-}" ] || say "next: $2"; exit 1; }
cannot() { say "$1"; say "next: $2"; exit 4; }
# A plugin of docker's is asked, a program is only looked for.
present() { if [[ $1 = *" "* ]]; then $1 version >/dev/null 2>&1; else command -v "$1" >/dev/null; fi; }
answers() { DOCKER_HOST=unix://$socket docker version >/dev/null 2>&1; }

# A pid alone may have come to belong to another process.
ours() {
  local pid
  pid=$(cat "$pidfile" 2>/dev/null) || return 1
  [ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "--pidfile $pidfile"
}

# Where this machine takes Debian's packages from, in either of apt's two forms, and the same for another suite.
sources=/etc/apt/sources.list.d/debian.sources
[ -f $sources ] || sources=/etc/apt/sources.list
first_line() { grep -E '^deb ' $sources | grep -vE 'cdrom:|security' | head -n 1; }
mirror() {
  if [[ $sources = *.sources ]]; then awk '/^URIs:/{print $2; exit}' $sources; else
    first_line | sed -E 's/^deb (\[[^]]*\] +)?([^ ]+) .*/\2/'
  fi
}
of_suite() {
  if [[ $sources = *.sources ]]; then awk 'NF==0{exit} !/^#/' $sources | sed -E "s/^Suites:.*/Suites: $1/"; else
    first_line | sed -E "s/^(deb (\[[^]]*\] +)?[^ ]+) .*/\1 $1 main/"
  fi
}

install_packages() {
  local apt=$state/apt
  [ "$(id -u)" = 0 ] || cannot "only root can install $*" "run as root, or set DOCKER_HOST to an engine of yours"
  # shellcheck source=/dev/null
  [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ] && [ -n "$(mirror)" ] ||
    cannot "this machine is no Debian 12 with a mirror in $sources, and lacks $*" \
      "install Docker 25 or newer with buildx and Compose 2.24, and set DOCKER_HOST"
  mkdir -p "$apt/parts" "$apt/prefs" "$apt/lists/partial"
  grep -v '^deb cdrom:' $sources >"$apt/parts/debian.${sources##*.}"
  of_suite trixie >"$apt/parts/trixie.${sources##*.}"
  printf 'Package: *\nPin: release n=trixie\nPin-Priority: 50\n' >"$apt/prefs/trixie"
  local options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/parts"
    -o "Dir::Etc::preferencesparts=$apt/prefs" -o "Dir::State::lists=$apt/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Dpkg::Use-Pty=0)
  # What is installed does not start by itself: the engine is started below, and ends with the tests.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
  fi
  say "installing $* from Debian's packages"
  {
    DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" -qq update &&
      DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" -qq -y install --no-install-recommends "$@"
  } >"$state/install.log" 2>&1 || fail "the packages could not be installed; see $state/install.log"
}

start() {
  rm -f "$pidfile"
  # A session of its own: it outlives the shell, and a Ctrl-C there does not reach it. Limits are the machine's own:
  # raising them needs a right that a container often lacks.
  setsid dockerd --data-root "$state/data" --exec-root "$state/run/exec" --pidfile "$pidfile" \
    --host "unix://$socket" >"$state/dockerd.log" 2>&1 </dev/null &
  for _ in $(seq 120); do
    answers && return
    sleep 0.5
  done
  tail -n 20 "$state/dockerd.log" >&2
  fail "dockerd does not answer after 60 s; see $state/dockerd.log"
}

# What is missing is installed, and nothing else.
install() {
  local tool missing=()
  for tool in "${!package[@]}"; do
    present "$tool" || missing+=("${package[$tool]}")
  done
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

# One of these scripts at a time.
lock() {
  mkdir -p "$state/run"
  exec 9>"$state/lock"
  flock 9
}

# The engine that docker's own settings lead to, where it answers.
other() {
  command -v docker >/dev/null && env -u DOCKER_HOST docker version >/dev/null 2>&1 &&
    env -u DOCKER_HOST docker context inspect --format '{{.Endpoints.docker.Host}}'
}

up() {
  local host=unix://$socket
  if ! ours && host=$(other); then
    say "already running, not by this script"
  else
    host=unix://$socket
    [ "$(id -u)" = 0 ] || cannot "only root can start an engine" "run as root, or set DOCKER_HOST to an engine of yours"
    lock
    install
    if ours && answers; then say "already running"; else start 9>&-; fi
  fi
  say "$(DOCKER_HOST=$host docker version --format 'engine {{.Server.Version}}'), $(docker compose version)"
  printf 'export DOCKER_HOST=%s\n' "$host"
}

down() {
  if ! ours; then
    say "not running"
    return
  fi
  local pid
  pid=$(cat "$pidfile")
  kill "$pid"
  for _ in $(seq 60); do
    [ -d "/proc/$pid" ] || { say "stopped; its images stay in $state"; return; }
    sleep 0.5
  done
  fail "dockerd (pid $pid) does not end" "see $state/dockerd.log"
}

case ${1:-} in
up) up ;;
packages) shift; lock; install_packages "$@" ;;
install) [ "$(id -u)" != 0 ] || lock; install ;;
down) down ;;
mirror) mirror ;;
status) ours && answers ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
