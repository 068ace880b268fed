#!/usr/bin/env bash
# learn.sh PROGRAM TEXT: runs the lesson on learning on a text; each loss that it prints must be below the previous one.
set -euo pipefail
"$1" "$2" | tee /dev/stderr | sed -n 's/^step [0-9]*, loss \([0-9.]*\):.*/\1/p' |
  awk 'NR > 1 && !($1 < before) { print "the loss rose to " $1 " from " before; bad = 1 } { before = $1 }
       END { if (NR != 6) print NR " losses are not 6"; exit bad || NR != 6 }'
if "$1" /nowhere 2>/dev/null; then echo "a text that is missing was learnt"; exit 1; fi
