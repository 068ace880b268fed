#!/usr/bin/env bash
# check.sh SOURCE: tests what ./run does around the build, in a copy of the project. There apt-get, dpkg-query, sudo,
# CMake and Ninja are stand-ins that record their calls.
# shellcheck disable=SC2016
set -euo pipefail
source=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/heed-scripts-XXXXXX")
trap 'rm -rf "$work"' EXIT
project="$work/a project"
unset HEED_VERBOSE HEED_NO_INSTALL HEED_WERROR
export CALLS=$work/calls INSTALLED=$work/installed

step() { printf -- '--- %s\n' "$*"; }
wrong() {
  printf 'wrong: %s\n--- calls\n%s\n--- stdout\n%s\n--- stderr\n%s\n' "$1" "$(cat "$CALLS")" "$(cat "$work/stdout")" \
    "$(cat "$work/stderr")" >&2
  exit 1
}

# stand_in NAME: makes a command NAME on the path, which records its arguments and then runs the script from stdin.
stand_in() {
  { printf '#!/bin/bash\nprintf "%%s\\n" "%s $*" >>"$CALLS"\n' "$1"; cat; } >"$work/bin/$1"
  chmod 755 "$work/bin/$1"
}

# fresh: sets up a project that was never built, on a system without ninja-build and libopenblas-dev.
fresh() {
  rm -rf "${project:?}" "${work:?}/bin"
  mkdir -p "$project" "$work/bin"
  cp -r "$source/run" "$source/scripts" "$project/"
  : >"$CALLS"
  (source "$source/scripts/packages.sh" && printf '%s\n' "${packages_run[@]}") |
    grep -vx -e ninja-build -e libopenblas-dev >"$INSTALLED"
  stand_in dpkg-query <<<'while read -r name; do printf "%s=installed " "$name"; done <"$INSTALLED"
    for name in "${@:4}"; do grep -qx "$name" "$INSTALLED" || exit 1; done'
  stand_in apt-get <<<'cat >/dev/null; [[ $* != *install* ]] || printf "%s\n" "${@:6}" >>"$INSTALLED"
    [[ $DEBIAN_FRONTEND == noninteractive ]]'
  stand_in sudo <<<'echo "sudo: a password is required" >&2; exit 1'
  stand_in cmake <<<'mkdir -p build/release/cli && touch build/release/build.ninja
    echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" >build/release/CMakeCache.txt
    printf "%s\n" "$@" | sed -n "s/^-D\([^=]*\)=/\1:STRING=/p" >>build/release/CMakeCache.txt; cat; echo configured'
  stand_in ninja <<<'cat; echo "[1/1] Building x"; echo "a note"
    printf "#!/bin/bash\necho heed \"\$@\"; cat\n" >"$2/cli/heed"; chmod 755 "$2/cli/heed"'
  [[ $EUID != 0 ]] || chown -R nobody "$work"
  chmod 755 "$work"
}

# run [AS] ARGS…: runs ./run from another folder with something on stdin; `as` is a command to run it under.
as=()
run() {
  status=0
  (cd / && PATH="$work/bin:$PATH" "${as[@]}" "$project/run" "$@" <<<"from stdin") \
    >"$work/stdout" 2>"$work/stderr" || status=$?
}

calls() { grep -c "^$1" "$CALLS" || true; }
expect_command() {
  [[ $status == 0 ]] || wrong "it failed"
  [[ $(cat "$work/stdout") == "heed $*"$'\n'"from stdin" ]] || wrong "heed did not get its arguments and stdin"
}

if [[ $EUID == 0 ]]; then
  step "root: installs what is missing and nothing else, then builds"
  fresh
  run explain "two words"
  expect_command explain two words
  grep -qx 'apt-get .*install -y --no-install-recommends ninja-build libopenblas-dev' "$CALLS" ||
    wrong "apt-get was not asked for the two packages that were missing"
  grep -q 'installing with apt-get: ninja-build libopenblas-dev' "$work/stderr" || wrong "it did not say so"
  as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
fi

step "neither root nor sudo: says what to type, and builds nothing"
fresh
run info
[[ $status == 1 ]] || wrong "the exit code is $status"
grep -qx 'heed: as root, type: apt-get install -y --no-install-recommends ninja-build libopenblas-dev' "$work/stderr" ||
  wrong "it did not say what to type"
[[ $(calls apt-get)$(calls cmake)$(calls ninja) == 000 ]] || wrong "it went on"

step "sudo without a password: takes it"
fresh
stand_in sudo <<<'shift; "$@"'
run info
expect_command info
[[ $(calls 'sudo -n env DEBIAN_FRONTEND=noninteractive') == 2 ]] || wrong "it did not take sudo"

step "all is there: no word of the build, and next time no look at packages, no configuring"
fresh
printf '%s\n' ninja-build libopenblas-dev >>"$INSTALLED"
run info
expect_command info
[[ ! -s $work/stderr ]] || wrong "it spoke of the build"
: >"$CALLS"
run info
expect_command info
[[ $(cat "$CALLS") == "ninja -C $project/build/release heed_command" ]] || wrong "it did more than ask Ninja"

step "alone, it shows a trained model on a sentence, and says how to type into it"
run
[[ $(tail -n 1 "$work/stdout") == *": ./run explain --model induction --html life.html" ]] || wrong "it does not say how"
sed -i '$d' "$work/stdout"  # the blank line before it $(…) drops
expect_command explain --model induction "Life is short, eat dessert first, Life is short, eat dessert first"

step "through a link with a blank in its name"
ln -s "$project/run" "$work/my heed"
(cd / && PATH="$work/bin:$PATH" "${as[@]}" "$work/my heed" info <<<"from stdin") >"$work/stdout"
expect_command info

# two: runs ./run twice at the same time; their messages are in stderr.1 and stderr.2.
two() {
  local pids=() pid
  for n in 1 2; do
    (cd / && PATH="$work/bin:$PATH" "${as[@]}" "$project/run" info </dev/null >"$work/stdout.$n" 2>"$work/stderr.$n") &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || wrong "one of two at once failed"; done
  cat "$work"/stdout.? >"$work/stdout"
  cat "$work"/stderr.? >"$work/stderr"
}

step "two at once with nothing to build: no word of a build"
stand_in ninja <<<'sleep 1.2; echo "[0/2] Re-checking globbed directories..."; sleep 0.3; echo "ninja: no work to do."'
two
[[ ! -s $work/stderr ]] || wrong "it spoke of the build"

step "two at once with something to build: one says that it waits"
stand_in ninja <<<'echo "[1/2] Building x"; sleep 2.5; echo "[2/2] Building y"'
two
grep -qx 'heed: waiting for another build in build/release to end' "$work/stderr" || wrong "it waited in silence"
grep -qE '^heed: building, [0-9]+ s, [12] of 2$' "$work/stderr" || wrong "it did not say how far it is"
run info
[[ $(grep -c waiting "$work/stderr") == 0 ]] || wrong "what had been built is still waited for"

step "the build fails: says what the compiler said, and looks for packages again next time"
stand_in ninja <<<'echo "[1/2] Building x"; echo "x.cpp:1: error: no"; exit 1'
run info
[[ $status == 1 && ! -s $work/stdout ]] || wrong "it went on"
grep -q 'x.cpp:1: error: no' "$work/stderr" || wrong "the compiler's message is missing"
[[ ! -e $project/build/.packages-run ]] || wrong "it would not look again"

step "another processor: configures anew, unless the build has all kernels"
fresh
printf '%s\n' ninja-build libopenblas-dev >>"$INSTALLED"
run info
cache=$project/build/release/CMakeCache.txt
for kernels in native all; do
  sed -i "s/^HEED_PROCESSOR:.*/HEED_PROCESSOR:STRING=0/; s/^HEED_KERNELS:.*/HEED_KERNELS:STRING=$kernels/" "$cache"
  : >"$CALLS"
  run info
  expect_command info
  [[ $(calls cmake) == $([[ $kernels == all ]] && echo 0 || echo 1) ]] || wrong "with $kernels kernels"
done

step "the project was moved: configures anew"
fresh
printf '%s\n' ninja-build libopenblas-dev >>"$INSTALLED"
run info
mv "$project" "$work/elsewhere"
project=$work/elsewhere
: >"$CALLS"
run info
expect_command info
[[ $(calls 'cmake --preset release') == 1 ]] || wrong "it did not configure"
