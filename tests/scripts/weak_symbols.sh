#!/usr/bin/env bash
# weak_symbols.sh NM OBJECT…: the object files of the fused kernel's units may share no inline function with code that
# must run anywhere: the linker keeps one copy of each, and it might be the one that was compiled for AVX-512. So what
# a unit defines weakly lies in the namespace of its own instruction set, which is the object's name.
set -euo pipefail
nm=$1
shift
status=0
for object in "$@"; do
  isa=$(basename "$object")
  isa=${isa%%.*}
  # V, W, v, w: weak; u: unique. Local symbols are nobody else's.
  symbols=$("$nm" --defined-only --demangle "$object")
  others=$(awk '$2 ~ /^[VvWwu]$/' <<<"$symbols" | grep -v "heed::detail::$isa::" || true)
  if [[ -n $others ]]; then
    printf '%s defines weakly:\n%s\n' "$object" "$others"
    status=1
  fi
  if ! grep -q "heed::detail::cpu::${isa}_kernels()" <<<"$symbols"; then
    printf '%s is not the unit of %s\n' "$object" "$isa"
    status=1
  fi
done
exit $status
