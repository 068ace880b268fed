#!/usr/bin/env bash
# check.sh shared|static SOURCE BUILD: builds the README's programs outside the tree and runs them, in each way that the
# README describes.
#
#   shared   what BUILD holds, installed into a prefix that is moved afterwards: find_package, pkg-config, the command.
#            Programs find the library without LD_LIBRARY_PATH.
#   static   attention alone, built anew inside the consumer by FetchContent; that one installed: find_package, pkg-config
set -euo pipefail
kind=$1 source=$2 build=$3
: "${CC:=cc}" "${CXX:=c++}"
export CC CXX
unset LD_LIBRARY_PATH
export OMPI_CC=$CC OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

work=$(mktemp -d "${TMPDIR:-/tmp}/heed-install-XXXXXX")
trap 'rm -rf "$work"' EXIT
prefix="$work/a prefix"

# shellcheck source=scripts/readme.sh
source "$source/scripts/readme.sh"

step() { printf -- '--- %s\n' "$*"; }

# consumer NAME OPTION…: configures, builds and runs the CMake project with these options; COMPONENTS names what it must find.
consumer() {
  local dir=$work/$1
  shift
  cmake -S "$work/consumer" -B "$dir" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 "$@" >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  cmake --build "$dir" --parallel 2 >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  "$dir/consumer"
  local component
  for component in $COMPONENTS; do "$dir/consumer_$component"; done
}

# with_pkg_config PACKAGE SOURCE COMPILER…: compiles SOURCE with the flags from pkg-config, and runs it.
with_pkg_config() {
  local package=$1 from=$2 flags
  shift 2
  flags=$("${pkg_config[@]}" --cflags --libs "$package")
  # eval is needed because pkg-config escapes the space in the prefix for a shell.
  eval "\"\$@\" -Wall -Wextra -Wpedantic -Werror \"$from\" -o \"$work/program\" $flags"
  "$work/program"
}

mkdir "$work/consumer"
cp "$source"/tests/install/consumer/* "$work/consumer/"
block cmake FetchContent "$source/README.md" | sed "s,PATH/TO/HEED,$source," >"$work/consumer/readme_fetch.cmake"
block cpp '#include <heed/' "$source/README.md" >"$work/consumer/readme.cpp"
block c '#include <heed/heed.h>' "$source/README.md" "$source"/docs/*.md >"$work/consumer/readme.c"

case $kind in
  shared)
    step "install, and move what was installed"
    cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
    mv "$work/first" "$prefix"
    step "what was installed"
    [[ $(cd "$prefix" && echo *) == "bin include lib share" ]] ||
      { echo "the prefix holds $(cd "$prefix" && echo *); bin include lib share was expected" >&2; exit 1; }
    cmp "$source/LICENSE" "$prefix/share/doc/heed/LICENSE"
    step "find_package"
    COMPONENTS="nn model"
    if [[ ${HEED_HAS_MPI:-OFF} == ON ]]; then COMPONENTS+=" mpi"; fi
    consumer installed "-DCMAKE_PREFIX_PATH=$prefix"
    step "the command"
    "$prefix/bin/heed" --version
    "$prefix/bin/heed" explain --model induction to be or not to be or | grep "predicts not"
    step "manual pages and completion"
    for page in heed heed-look heed-info; do
      cmp <("$prefix/bin/heed" --man "${page#heed-}") "$prefix/share/man/man1/$page.1"
    done
    for file in bash-completion/completions/heed zsh/site-functions/_heed fish/vendor_completions.d/heed.fish; do
      shell=${file%%[-/]*}
      cmp <("$prefix/bin/heed" --completion "$shell") "$prefix/share/$file"
    done
    pkg_config=(pkg-config)
    ;;
  static)
    step "FetchContent"
    COMPONENTS=""
    if [[ ${HEED_HAS_MPI:-OFF} == ON ]]; then COMPONENTS=mpi; fi
    consumer beside "-DHEED_SOURCE=$source" -DHEED_INSTALL=ON -DHEED_KERNELS=plain -DHEED_MPI=ON
    if [[ -e $work/beside/_deps/heed-build/src/libheed_model.a ]]; then
      echo "a project that asks for attention alone got libheed_model" >&2
      exit 1
    fi
    if [[ ! -e $work/beside/_deps/heed-build/src/libheed.a ]]; then
      echo "a project that does not set BUILD_SHARED_LIBS got no static library" >&2
      exit 1
    fi
    cmake --install "$work/beside" --prefix "$prefix" >"$work/log" || { cat "$work/log"; exit 1; }
    cmp "$source/LICENSE" "$prefix/share/doc/heed/LICENSE"
    step "find_package"
    consumer installed "-DCMAKE_PREFIX_PATH=$prefix"
    pkg_config=(pkg-config --static)
    ;;
esac

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
step "${pkg_config[*]}, C++"
with_pkg_config heed "$work/consumer/readme.cpp" "$CXX" -std=c++20
step "${pkg_config[*]}, C"
with_pkg_config heed "$work/consumer/readme.c" "$CC" -std=c99
if [[ ${HEED_HAS_MPI:-OFF} == ON ]]; then
  step "${pkg_config[*]}, C over MPI"
  with_pkg_config heed_mpi "$work/consumer/mpi.c" mpicc -std=c99
fi
if [[ $kind == shared ]]; then
  for component in nn model; do
    step "${pkg_config[*]} heed_$component"
    with_pkg_config "heed_$component" "$work/consumer/$component.cpp" "$CXX" -std=c++20
  done
  step "a recipe of docs/cpp.md"
  block cpp 'Prefill' "$source/docs/cpp.md" >"$work/consumer/prefill.cpp"
  with_pkg_config heed "$work/consumer/prefill.cpp" "$CXX" -std=c++20
fi
