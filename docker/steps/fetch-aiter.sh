#!/bin/sh
# Fetches aiter and its submodule, each at one commit, into a folder; fails if the checkout is not that commit.
#
#   fetch-aiter.sh FOLDER REPOSITORY COMMIT SUBMODULE SUBMODULE_REPOSITORY SUBMODULE_COMMIT
set -eu

fail() {
  printf 'error: %s\n  next:  %s\n' "$1" "$2" >&2
  exit 1
}

# One commit, by its full name, without the history: GitHub and any server with protocol version 2 gives it.
fetch() {
  git init --quiet "$1"
  git -C "$1" fetch --quiet --depth 1 "$2" "$3" ||
    fail "$2 does not have the pinned commit $3" "correct docker/stacks, then: fastfill pins render"
  git -C "$1" checkout --quiet --detach FETCH_HEAD
  found=$(git -C "$1" rev-parse HEAD)
  [ "$found" = "$3" ] ||
    fail "$2 gave commit $found, not the pinned $3" "pin a full commit in docker/stacks, not a branch or a tag"
}

folder=$1 repository=$2 commit=$3 submodule=$4 submodule_repository=$5 submodule_commit=$6
fetch "$folder" "$repository" "$commit"
named=$(git -C "$folder" ls-tree HEAD "$submodule" | awk '{print $3}')
[ "$named" = "$submodule_commit" ] ||
  fail "aiter $commit names $submodule at ${named:-nothing}, not at the pinned $submodule_commit" \
    "correct docker/stacks, then: fastfill pins render"
rm -rf "${folder:?}/$submodule"
fetch "$folder/$submodule" "$submodule_repository" "$submodule_commit"
# What the image keeps of the history.
printf '{"aiter": "%s", "submodule": "%s"}\n' "$commit" "$submodule_commit" >"$folder/fastfill-pins.json"
rm -rf "$folder/.git" "$folder/$submodule/.git"
