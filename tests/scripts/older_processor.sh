#!/usr/bin/env bash
# older_processor.sh HEED CPU TARGET: on an emulated x86-64 CPU, heed must choose TARGET by itself, agree with the
# reference on this processor, forward and backward, and generate a known text with a cache.
set -euo pipefail
heed=$1 cpu=$2 target=$3
if ! command -v qemu-x86_64 >/dev/null; then
  echo "qemu-x86_64 is missing; the package qemu-user, which ./test --full installs, has it"
  exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/heed-processor-XXXXXX")
trap 'rm -rf "$work"' EXIT
unset HEED_ISA

wrong() { printf '%s: %s\n' "$cpu" "$1" >&2 && exit 1; }
# QEMU warns of features that it does not emulate.
emulated() { qemu-x86_64 -cpu "$cpu" "$heed" "$@" 2> >(grep -v '^qemu-x86_64: warning: ' >&2); }

taken=$(emulated info --json | sed -n 's/.*"isa":"\([^"]*\)".*/\1/p')
[[ $taken == "$target" ]] || wrong "heed takes the target '$taken'; '$target' is expected"

words=$(printf 'to be or not to be, that is the question: %.0s' {1..12})
"$heed" explain "$words" --heads 4 --init normal --save "$work/steps.safetensors" >/dev/null
inputs=(--causal)
for input in query key value; do inputs+=("--$input" "$work/steps.safetensors:$input"); done
results=(out lse received grad-query grad-key grad-value)
# attend PROGRAM KERNEL DTYPE: writes the results to $work/DTYPE-KERNEL-RESULT.npy.
attend() {
  local files=()
  for result in "${results[@]}"; do files+=("--$result" "$work/$3-$2-$result.npy"); done
  "$1" attend "${inputs[@]}" --grad-output "$work/steps.safetensors:value" --kernel "$2" --dtype "$3" "${files[@]}"
}

# Prints the numbers of a .npy file of f32, one per line. Bytes 8 and 9 hold the length of the header after them.
numbers() { od -An -v -tf4 -w4 -j $((10 + $(od -An -tu2 -j8 -N2 "$1"))) "$1"; }

# The largest difference between two files, divided by the largest number.
difference() {
  paste <(numbers "$1") <(numbers "$2") |
    awk 'function size(x) { return x < 0 ? -x : x }
         NF != 2 || /nan|inf/ { most = 0; exit }
         size($1) > most { most = size($1) }
         size($1 - $2) > apart { apart = size($1 - $2) }
         END { if (most > 0) print apart / most; else print "numbers that do not compare" }'
}

# f32 adds about a hundred terms; bf16 has 8 bits, and its results are rounded once more.
for tolerance in f32=1e-5 bf16=1e-2; do
  dtype=${tolerance%=*}
  attend "$heed" reference "$dtype"
  attend emulated fused "$dtype"
  for result in "${results[@]}"; do
    apart=$(difference "$work/$dtype-reference-$result.npy" "$work/$dtype-fused-$result.npy")
    awk -v apart="$apart" -v most="${tolerance#*=}" 'BEGIN { exit !(apart ~ /^[0-9.e-]+$/ && apart + 0 <= most + 0) }' ||
      wrong "$result in $dtype differs from the reference's by $apart; at most ${tolerance#*=} is expected"
  done
done

for format in f32 bf16 int8 int4; do
  text=$(emulated generate induction --prompt 'to be or not to be or' --tokens 3 --temperature 0 --cache "$format")
  [[ $text == "to be or not to be or not to be" ]] || wrong "over a cache of $format '$text' is written"
done
