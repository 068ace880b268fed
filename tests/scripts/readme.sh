#!/usr/bin/env bash
# readme.sh SOURCE HEED: what the README says of ./run is so. The lines of its console blocks that begin with `$ ` are
# run, in order, and the lines below each must come in its output, in that order (a line of … stands for any); every
# `./run …` in a table is run. All must succeed.
# shellcheck disable=SC2016,SC2034
set -euo pipefail
source=$1 heed=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/heed-readme-XXXXXX")
trap 'rm -rf "$work"' EXIT
cp "$source/LICENSE" "$work"
cd "$work"
: >said
commands=0

# perform COMMAND: runs it with heed in the place of ./run.
perform() {
  commands=$((commands + 1))
  eval "${1/#.\/run/\"\$heed\"}" >said 2>&1 || { printf 'failed: %s\n' "$1"; cat said; exit 1; }
}

while IFS= read -r line <&3; do
  case $line in
    '```console') inside=1 ;;
    '```') inside= ;;
    '| '*\`./run*) perform "$(sed -E 's/.*`(\.\/run[^`]*)`.*/\1/' <<<"$line")" ;;
    '$ '*) perform "${line#\$ }" && exec 4<said ;;
    '' | …) ;;
    *)
      [[ ${inside:-} ]] || continue
      while IFS= read -r found <&4 || { printf 'not printed, or not there: %s\n' "$line"; exit 1; }; do
        [[ $found != "$line" ]] || break
      done ;;
  esac
done 3<"$source/README.md"
if ((commands < 10)); then echo "only $commands commands were found"; exit 1; fi
echo "$commands commands of the README do what it says"
