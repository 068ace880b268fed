#!/usr/bin/env bash
# exports.sh LIBRARY VERSION: the shared library exports only names of namespace heed and the C functions heed_*. It
# exports no internals and no instances of std templates. Its SONAME holds the ABI version: before 1.0 a minor
# version may change it (docs/release.md), from then on only a major one.
set -euo pipefail
library=$1 version=$2

soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
interface=${version%%.*}
if [[ $interface == 0 ]]; then interface=${version%.*}; fi
if [[ $soname != "libheed.so.$interface" ]]; then
  echo "the SONAME is '$soname'; libheed.so.$interface was expected" >&2
  exit 1
fi

names=$(nm -D --defined-only --demangle "$library" | cut -d' ' -f3-)
if ! grep -q '^heed::version' <<<"$names"; then
  echo "heed::version() is not exported" >&2
  exit 1
fi
foreign=$(grep -v -E '^(heed_[a-z0-9_]+$|((typeinfo|typeinfo name|vtable) for )?heed::)' <<<"$names" || true)
internal=$(grep -E 'heed::(detail|[a-z_]+::detail)::|\(anonymous namespace\)' <<<"$names" || true)
if [[ -n $foreign$internal ]]; then
  printf 'exported, but not part of the interface:\n%s\n' "$foreign$internal" >&2
  exit 1
fi
echo "$(wc -l <<<"$names") names exported, all of the interface"
