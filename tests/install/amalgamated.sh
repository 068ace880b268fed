#!/usr/bin/env bash
# amalgamated.sh SOURCE: what scripts/amalgamate writes compiles with no other file and computes attention. The
# compiler's flags choose the kernels.
set -euo pipefail
source=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/heed-amalgamated-XXXXXX")
trap 'rm -rf "$work"' EXIT
"$source/scripts/amalgamate" "$work"
cp "$source/tests/install/amalgamated.cpp" "$work/program.cpp"
cd "$work"
flags=() kernels=plain
if [[ $(uname -m) == aarch64 ]]; then
  kernels=neon
elif grep -qw avx2 /proc/cpuinfo; then
  flags=(-march=x86-64-v3) kernels=avx2
fi
"${CXX:-c++}" -std=c++20 -O0 "${flags[@]}" -ffp-contract=off -pthread program.cpp heed.cpp -o program
env -u HEED_ISA ./program "$kernels"
