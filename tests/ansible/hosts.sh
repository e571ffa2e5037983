#!/usr/bin/env bash
# Hosts to roll out to: containers with systemd as PID 1, sshd and an engine of their own, on the engine of DOCKER_HOST.
#
#   tests/ansible/hosts.sh up [N] [PREFIX]   start N (3) of them; prints an inventory's lines, one a host
#   tests/ansible/hosts.sh down              end exactly those that `up` started
#   tests/ansible/hosts.sh list              NAME ID ADDRESS of each
#
# State lies in FASTFILL_HOSTS (default: <cache>/fastfill/hosts): a throw-away ssh key, the hosts' public keys, the ids.
# Their addresses are FASTFILL_HOSTS_SUBNET (172.31.250) .11, .12 and so on.
# The base image is made once from Debian's packages; the engine's are pinned in packages.txt.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${FASTFILL_HOSTS:-${XDG_CACHE_HOME:-$HOME/.cache}/fastfill/hosts}
ids=$state/ids
network=fastfill-hosts
subnet=${FASTFILL_HOSTS_SUBNET:-172.31.250}

say() { printf 'hosts: %s\n' "$*" >&2; }
fail() { say "$1"; [ -z "${2:-}" ] || say "next: $2"; exit 4; }

make_image() {
  image=fastfill-host:$({ cat "$here/packages.txt"; declare -f make_image; } | sha256sum | cut -c1-12)
  ! docker image inspect "$image" >/dev/null 2>&1 || return 0
  local mirror include
  mirror=$("$here/../docker/engine.sh" mirror)
  include=$(grep -v '^#' "$here/packages.txt" | paste -sd,)
  say "making $image from Debian's packages"
  # shellcheck disable=SC2016 # mmdebstrap's own shell sets $1
  local hook='set -e
    own=/usr/local/share/ca-certificates; mkdir -p "$1$own"
    if ls $own/*.crt >/dev/null 2>&1; then cp $own/*.crt "$1$own"; chroot "$1" update-ca-certificates >/dev/null; fi
    chroot "$1" systemctl mask systemd-modules-load.service getty@tty1.service console-getty.service \
      systemd-networkd-wait-online.service systemd-resolved.service >/dev/null 2>&1
    chroot "$1" systemctl enable ssh.service docker.service >/dev/null 2>&1
    rm -f "$1"/etc/ssh/ssh_host_*; rm -rf "$1"/var/lib/apt/lists; mkdir -p -m 700 "$1/root/.ssh"'
  mmdebstrap --quiet --variant=minbase --include="ca-certificates,$include" --aptopt='Acquire::Check-Valid-Until "false"' \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook="$hook" trixie - "$mirror" |
    docker import --change 'CMD ["/sbin/init"]' --change 'VOLUME /var/lib/docker' - "$image" >/dev/null || {
    docker rmi "$image" >/dev/null 2>&1 || true
    fail "the image could not be made" "look at the lines above; the engine's packages are pinned in packages.txt"
  }
}

keys() {
  [ -f "$state/id" ] || ssh-keygen -q -t ed25519 -N '' -C throw-away -f "$state/id"
  [ -f "$state/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C hosts -f "$state/host_key"
}

start() {
  local name=$1 number=$2 id
  # A fixed address: a host that reboots keeps its own.
  id=$(docker run --detach --name "$name" --hostname "$name" --privileged --cgroupns private --stop-signal SIGRTMIN+3 \
    --tmpfs /run --tmpfs /run/lock --tmpfs /tmp --env container=docker --network "$network" --ip "$subnet.$((10 + number))" "$image")
  printf '%s %s\n' "$name" "$id" >>"$ids"
  docker cp -q "$state/id.pub" "$id:/root/.ssh/authorized_keys"
  docker cp -q "$state/host_key" "$id:/etc/ssh/ssh_host_ed25519_key"
  docker exec "$id" sh -c 'chown root:root /root/.ssh/authorized_keys /etc/ssh/ssh_host_ed25519_key &&
    chmod 600 /root/.ssh/authorized_keys /etc/ssh/ssh_host_ed25519_key'
}

address() { docker inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$1"; }

list() {
  [ ! -s "$ids" ] || while read -r name id; do printf '%s %s %s\n' "$name" "$id" "$(address "$id")"; done <"$ids"
}

ready() { docker exec "$1" sh -c 'systemctl is-active --quiet docker ssh && docker version >/dev/null' 2>/dev/null; }

up() {
  local count=${1:-3} prefix=${2:-ffhost} name id place
  docker version >/dev/null 2>&1 || fail "no engine answers" "eval \"\$(tests/docker/engine.sh up)\""
  mkdir -p "$state"
  keys
  make_image
  docker network inspect "$network" >/dev/null 2>&1 ||
    docker network create --subnet "$subnet.0/24" "$network" >/dev/null
  for i in $(seq "$count"); do
    name=$prefix$i
    if id=$(docker inspect --format '{{.Id}}' "$name" 2>/dev/null); then
      grep -q " $id\$" "$ids" 2>/dev/null || fail "a container $name is there that is not ours" "docker rm -fv $name"
      docker start "$id" >/dev/null
    else
      start "$name" "$i"
    fi
  done
  : >"$state/known_hosts"
  while read -r name id place; do
    for _ in $(seq 240); do
      ready "$id" && break
      sleep 0.5
    done
    ready "$id" || fail "$name has no ssh or engine after 120 s" "docker exec $name systemctl --failed"
    docker exec "$id" systemctl restart ssh
    printf '%s %s\n' "$place" "$(cut -d' ' -f1,2 <"$state/host_key.pub")" >>"$state/known_hosts"
    printf '%s ansible_host=%s\n' "$name" "$place"
  done < <(list)
}

down() {
  [ -s "$ids" ] || { say "none"; return; }
  local name id
  while read -r name id; do
    docker rm --force --volumes "$id" >/dev/null 2>&1 || true
    say "ended $name"
  done <"$ids"
  rm -f "$ids"
  docker network rm "$network" >/dev/null 2>&1 || true
}

case ${1:-} in
up) shift; up "$@" ;;
down) down ;;
list) list ;;
*) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
