#!/usr/bin/env bash
# documents.sh ROOT: every file and folder that docs/architecture.md names exists; so does every source of src/attention that
# docs/kernel.md names.
set -euo pipefail
cd "$1"
status=0
count=0
while IFS= read -r path; do
  count=$((count + 1))
  if [[ ! -e $path ]]; then
    printf 'docs/architecture.md names %s, which does not exist\n' "$path"
    status=1
  fi
done < <({
  grep -oE '^    [a-z_]+/[a-z_/]*' docs/architecture.md | tr -d ' '
  grep -oE '`[a-z_]+/[a-z0-9_./]*`' docs/architecture.md | tr -d '`'
} | sort -u)
while IFS= read -r path; do
  if [[ ! -e src/attention/$path && ! -e $path ]]; then
    printf 'docs/kernel.md names %s, which does not exist\n' "$path"
    status=1
  fi
done < <(grep -oE '`[a-z_]+/[a-z0-9_/]*\.[ch]pp`' docs/kernel.md | tr -d '`' | sort -u)
((count > 30)) || { printf 'only %d paths were found in docs/architecture.md\n' "$count"; status=1; }
exit $status
