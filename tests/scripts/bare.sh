#!/usr/bin/env bash
# bare.sh SOURCE: SIGTERM ends scripts/bare with all that it started, and its folder is removed. Here the minimal system is
# empty, and unshare is a stand-in that sleeps. Skipped (77) without root, which scripts/bare needs.
set -euo pipefail
((EUID == 0)) || exit 77
source=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/heed-scripts-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,tmp,project/{scripts,build/bare},system/{etc,home/visitor}}
cp "$source"/scripts/{bare,common.sh,packages.sh,readme.sh} "$work/project/scripts"
tar -C "$work/system" -cf "$work/project/build/bare/bookworm.tar" .
git -C "$work/project" init --quiet
# shellcheck disable=SC2016
printf '#!/bin/bash\necho $$ >"%s"\nexec sleep 60\n' "$work/started" >"$work/bin/unshare"
chmod +x "$work/bin/unshare"

TMPDIR=$work/tmp PATH=$work/bin:$PATH HEED_NO_INSTALL=1 "$work/project/scripts/bare" >"$work/said" 2>&1 &
bare=$!
for ((tries = 0; tries < 300; ++tries)); do [[ ! -s $work/started ]] || break; sleep 0.1; done
inside=$(cat "$work/started") || { cat "$work/said" && exit 1; }
kill -TERM $bare
status=0
wait $bare || status=$?
left=$(ls "$work/tmp")
still=$(ps -o pid= -p "$inside" || true)
[[ -z $still ]] || kill -KILL "$inside"
[[ $status == 143 && -z $left && -z $still ]] || {
  printf 'status %s, left %s, still running %s\n%s\n' "$status" "$left" "$still" "$(cat "$work/said")"
  exit 1
}
