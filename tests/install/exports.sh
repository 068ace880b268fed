#!/usr/bin/env bash
# exports.sh VERSION LIBRARY…: the shared libraries of this version show the names of namespace heed and the C functions
# heed_*, and no instances of std templates. Of heed's internals they show what shown_to_siblings lists: the names of libheed
# that heed_nn, heed_model, heed_mpi, Python's module and the command use. Their SONAMEs name the interface: before 1.0 a minor version may change it
# (docs/release.md), from then on a major one. libheed needs the C and C++ runtime alone, and the others do not need each other.
set -euo pipefail
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
version=$1
shift
interface=${version%%.*}
if [[ $interface == 0 ]]; then interface=${version%.*}; fi

for library; do
  name=$(basename "$library" | sed 's/\.so.*//')
  soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
  if [[ $soname != "$name.so.$interface" ]]; then
    echo "the SONAME is '$soname'; $name.so.$interface was expected" >&2
    exit 1
  fi
  # Each library stands on libheed alone; heed_mpi trains over ranks, too.
  siblings=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(libheed[a-z_]*\)\..*/\1/p' | sort | paste -sd' ')
  case $name:$siblings in
    libheed: | libheed_*:libheed | libheed_mpi:"libheed libheed_nn") ;;
    *) echo "$name needs ${siblings:-no library of heed}; libheed alone was expected" >&2 && exit 1 ;;
  esac
  names=$(nm -D --defined-only --demangle "$library" | cut -d' ' -f3-)
  # Debian 13's nm leaves names with requirements as they are: _ZNK4heed…
  foreign=$(grep -v -E '^(heed_[a-z0-9_]+$|((typeinfo|typeinfo name|vtable) for )?heed::|_ZNK?4heed)' <<<"$names" || true)
  internal=$({ grep -E 'heed::(detail|[a-z_]+::detail)::|\(anonymous namespace\)|^_ZN.*6detail' <<<"$names" || true; } |
    sed -E 's/[([].*//; s/::~.*//' | sort -u | grep -vxFf "$here/shown_to_siblings" || true)
  if [[ -n $foreign$internal ]]; then
    printf '%s shows what is not part of the interface:\n%s\n' "$name" "$foreign$internal" >&2
    exit 1
  fi
  echo "$name: $(wc -l <<<"$names") names, all of the interface"
done

libheed=$1
needed=$(readelf -d "$libheed" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(lib(stdc\+\+|c\+\+|c\+\+abi|m|gcc_s|c|pthread)\.so|ld-linux)' || true)
if [[ -n $needed ]]; then
  printf 'libheed needs more than the C and C++ runtime: %s\n' "$needed" >&2
  exit 1
fi
grep -q ' heed::version' <<<"$(nm -D --defined-only --demangle "$libheed")" || { echo "heed::version() is not exported" >&2 && exit 1; }
