# Functions shared by ./run, ./test and .ci/run: installing packages, configuring, building, and messages on stderr.
# Sourced with `root` set to the project's folder.
#
# Variables for the user:
#   HEED_VERBOSE=1      shows the output of apt-get, CMake and the compiler
#   HEED_NO_INSTALL=1   never installs a package; uses the installed ones
#   HEED_WERROR=1       turns warnings into errors
# shellcheck shell=bash disable=SC2154

# shellcheck source=scripts/packages.sh
source "$root/scripts/packages.sh"

# A prefix for commands that build or test; ./test sets it if ThreadSanitizer needs one.
launcher=()

say() { printf 'heed: %s\n' "$*" >&2; }
fail() {
  say "$@"
  exit 1
}

# Whether stderr is a terminal on which a line can be overwritten.
on_terminal() { [[ -t 2 && ${TERM:-dumb} != dumb ]]; }

# hold NAME: waits until no other ./run or ./test uses the same build; `release` ends the hold. It prints a message if
# the other process is building, as recorded in the lock file, or if the wait is long.
held=
hold() {
  local waited=0 told=0
  mkdir -p "$root/build"
  held=$root/build/.lock-$1
  exec 9>>"$held"
  command -v flock >/dev/null || return 0
  until flock -w 1 9; do
    if ((!told)) && [[ -s $held || $((++waited)) -ge 5 ]]; then
      say "waiting for another build in build/$1 to end"
      told=1
    fi
  done
  : >"$held"
}
note_work() { if [[ -n $held ]]; then echo "working" >"$held"; fi; }
release() {
  if [[ -n $held ]]; then : >"$held"; fi
  held=
  exec 9>&-
}

# show_progress WHAT: shows the progress of a tool from its output, with the elapsed seconds. A terminal gets one
# line, updated every second; other outputs get a line every ten seconds. All lines except Ninja's and Make's progress
# go on to stdout. (Ninja prints "[0/N]" while it checks whether there is work.)
show_progress() {
  local what=$1 line part='' at='' status heard=0 shown=0 begun=$SECONDS next=$((SECONDS + 2)) width=${COLUMNS:-80}
  while :; do
    status=0
    IFS= read -r -t 1 line || status=$?
    part+=$line
    if ((status > 0 && status <= 128)); then break; fi
    if ((status == 0)); then
      line=$part part=''
      if [[ $line =~ ^\[\ *0/ || $line == "ninja: no work to do." ]]; then continue; fi
      heard=1
      if [[ $line =~ ^\[\ *([0-9]+)(/[0-9]+|%)\] ]]; then
        note_work
        at=", ${BASH_REMATCH[1]}${BASH_REMATCH[2]/\// of }"
      else
        printf '%s\n' "$line"
        if on_terminal; then at=": $line"; fi
      fi
    fi
    if ((!heard && SECONDS - begun < 5)); then continue; fi # too short to report
    if on_terminal; then
      line="heed: $what, $((SECONDS - begun)) s$at"
      printf '\r\033[K%s' "${line:0:width-1}" >&2
      shown=1
    elif ((SECONDS >= next)); then
      say "$what, $((SECONDS - begun)) s$at"
      next=$((SECONDS + 10))
    fi
  done
  if [[ -n $part ]]; then printf '%s\n' "$part"; fi
  if ((shown)); then printf '\r\033[K' >&2; fi
}

# quietly WHAT COMMAND…: runs a command that needs no input. Its output is shown only if it fails.
quietly() {
  local what=$1 output status
  shift
  if [[ -n ${HEED_VERBOSE:-} ]]; then
    "$@" </dev/null >&2 9>&-
    return
  fi
  output=$(
    set -o pipefail
    "$@" </dev/null 2>&1 9>&- | show_progress "$what"
  ) && return
  status=$?
  printf '%s\n' "$output" >&2
  return $status
}

# missing_packages NAME…: prints the packages that are not installed, one per line. (dpkg-query fails for unknown
# ones.)
missing_packages() {
  local installed
  installed=" $(dpkg-query -W -f '${Package}=${db:Status-Status} ' "$@" 2>/dev/null || true)"
  for name in "$@"; do
    [[ $installed == *" $name=installed "* ]] || echo "$name"
  done
}

# need_packages SET: installs the packages of packages_SET. A stamp records that all are installed.
need_packages() {
  local stamp=$root/build/.packages-$1 missing
  local -n wanted="packages_$1"
  if [[ -n ${HEED_NO_INSTALL:-} || $stamp -nt $root/scripts/packages.sh ]]; then return; fi
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt-get here; the contents of these Debian packages must be installed: ${wanted[*]}"
    return
  fi
  hold packages
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if ((${#missing[@]})); then install_packages "${missing[@]}"; fi
  touch "$stamp"
  release
}

# install_packages NAME…: installs as root or with sudo. Without either, it prints the command to run and exits.
install_packages() {
  local as_root=() install=(apt-get install -y --no-install-recommends "$@")
  if ((EUID != 0)); then
    if sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    elif command -v sudo >/dev/null && [[ -t 0 && -t 2 && -z ${CI:-} ]]; then
      as_root=(sudo) # it asks for the password itself
    else
      say "these packages are missing, and neither root nor sudo is available to install them: $*"
      fail "as root, type: ${install[*]}"
    fi
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1)
  say "installing with apt-get: $*"
  quietly "installing" "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=600 update ||
    say "apt-get update failed; continuing with the existing package lists"
  quietly "installing" "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=600 "${install[@]:1}" ||
    fail "apt-get failed; as root, type: ${install[*]}"
}

# forget_packages: removes the stamps, which may be wrong, so that packages are checked again next time.
forget_packages() { rm -f "$root"/build/.packages-*; }

# processor: a number that differs between processors with different features.
processor() { { grep -m 1 -E '^(flags|Features)' /proc/cpuinfo || uname -m; } 2>/dev/null | cksum | cut -d ' ' -f 1; }

# configure PRESET [KEY=VALUE…]: runs CMake for build/PRESET, unless it is configured with the same values.
configure() {
  local preset=$1 dir=$root/build/$1 generator=() setting changed=0
  shift
  local settings=("$@")
  if [[ -n ${HEED_WERROR:-} ]]; then settings+=(HEED_WERROR=ON); fi
  if [[ -e $dir/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    rm -rf "$dir" # the project was moved or copied, but CMake's folders cannot be
  fi
  if [[ -e $dir/build.ninja || -e $dir/Makefile ]]; then
    for setting in "${settings[@]}"; do
      grep -q "^${setting%%=*}:[A-Z]*=${setting#*=}\$" "$dir/CMakeCache.txt" || changed=1
    done
    ((changed)) || return 0
  elif command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  if ! (cd "$root" && quietly "configuring" cmake --preset "$preset" "${generator[@]}" "${settings[@]/#/-D}"); then
    rm -f "$dir/build.ninja" "$dir/Makefile"
    forget_packages
    fail "CMake could not configure build/$preset; what it said is above"
  fi
}

# build PRESET [TARGET]: brings build/PRESET up to date.
build() {
  local dir=$root/build/$1 target=${2:-all}
  local tool=(cmake --build "$dir" --target "$target" --parallel "$(nproc)")
  if [[ -e $dir/build.ninja ]]; then tool=(ninja -C "$dir" "$target"); fi
  if ! quietly "building" "${launcher[@]}" "${tool[@]}"; then
    forget_packages
    fail "the build in build/$1 failed; what the compiler said is above"
  fi
}
