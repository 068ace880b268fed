#!/usr/bin/env bash
# weak_symbols.sh NM OBJECT…: object files of the fused kernel's units must share no inline function with portable code.
# The linker keeps one copy of each, and it might be the one compiled for AVX-512. So all weak symbols of a unit must be
# in the namespace of its own instruction set, which is the object's name.
set -euo pipefail
nm=$1
shift
status=0
for object in "$@"; do
  isa=$(basename "$object")
  isa=${isa%%.*}
  # V, W, v, w: weak; u: unique. Local symbols are not shared.
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
