#!/usr/bin/env bash
# exports.sh LIBHEED.SO: the shared library is called libheed.so.0 and shows the names of namespace heed and the C
# functions heed_*, nothing else: no internals, no instances of std templates.
set -euo pipefail
library=$1

soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
if [[ $soname != libheed.so.0 ]]; then
  echo "the SONAME is '$soname'; libheed.so.0 was expected" >&2
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
