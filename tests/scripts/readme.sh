#!/usr/bin/env bash
# readme.sh SOURCE HEED DOCUMENT=LEAST…: runs the commands of documents. It runs each line `$ …` of the console blocks,
# in order. The lines below it must occur in its output, in that order (a line of … stands for any lines). It also runs
# each `./run …` in a table or a sentence. At least LEAST commands must run, and all must succeed. Each test that
# `./test -- -R …` names must exist. HEED_FILES is a file or folder that the commands find beside them.
# shellcheck disable=SC2016,SC2034
set -euo pipefail
source=$1 heed=$2
shift 2
work=$(mktemp -d "${TMPDIR:-/tmp}/heed-readme-XXXXXX")
trap 'rm -rf "$work"' EXIT
cp "$source/LICENSE" "$work"
if [[ -n ${HEED_FILES:-} ]]; then ln -s "$HEED_FILES" "$work"; fi
cd "$work"

# perform COMMAND: runs it, with heed in place of ./run.
perform() {
  commands=$((commands + 1))
  eval "${1/#.\/run/\"\$heed\"}" >said 2>&1 || { printf 'failed: %s\n' "$1"; cat said; exit 1; }
}

# perform_named LINE: runs the commands in backticks. It skips `./run ARGS…`, which stands for any command, and servers,
# which do not end (test_serve.py).
perform_named() {
  local command
  while IFS= read -r command; do
    case $command in
      *ARGS* | *--serve*) ;;
      ./run\ *) perform "$command" ;;
      ./test\ --\ -R\ *)
        grep -rq -- "${command##* }" "$source/tests" || { printf 'there is no test of %s\n' "$command"; exit 1; } ;;
    esac
  done < <(grep -oE '`\./(run|test) [^`]*`' <<<"$1" | tr -d '`')
}

# look_into DOCUMENT LEAST
look_into() {
  local line inside='' found
  commands=0
  : >said
  while IFS= read -r line <&3; do
    case $line in
      '```') inside='' ;;
      '```console') inside=console ;;
      '```'*) inside=other ;;
      *)
        case $inside:$line in
          other:* | console: | console:…) ;;
          'console:$ '*) perform "${line#\$ }" && exec 4<said ;;
          console:*)
            while IFS= read -r found <&4 || { printf 'not printed, or not there: %s\n' "$line"; exit 1; }; do
              [[ $found != "$line" ]] || break
            done ;;
          *) perform_named "$line" ;;
        esac ;;
    esac
  done 3<"$source/$1"
  if ((commands < $2)); then echo "only $commands commands were found in $1"; exit 1; fi
  echo "$commands commands of $1 do what it says"
}
for document in "$@"; do look_into "${document%=*}" "${document#*=}"; done
