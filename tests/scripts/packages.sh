#!/usr/bin/env bash
# packages.sh ROOT: documents, pyproject.toml and scripts must agree with scripts/packages.sh on packages. An `apt-get
# install` command in a document that belongs to one of its lists must name all of that list. No document may name a
# package that is in no list.
set -euo pipefail
cd "$1"
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
status=0
wrong() { printf '%s\n' "$*" && status=1; }

one_line() { printf '%s\n' "$@" | sort -u | paste -sd ' '; }

# installs FILE: prints the packages that the file installs with apt-get, one command per line. A command may continue
# after a backslash, and prose may break after `apt-get install`.
installs() {
  sed -e ':again; /\(\\\|apt-get install\)$/ { N; s/\\\?\n */ /; b again }' "$1" |
    sed -nE 's/.*apt-get install +(-[a-z-]+ +)*([a-z0-9][a-z0-9.+ -]*).*/\2/p'
}

# expect FILE PACKAGE LIST: the command in FILE that installs PACKAGE must install the packages of packages_LIST.
expect() {
  local -n wanted=packages_$3
  local found
  found=$(installs "$1" | grep -E "(^| )${2//+/\\+}( |$)" || true)
  # shellcheck disable=SC2086
  [[ $(one_line $found) == "$(one_line "${wanted[@]}")" ]] ||
    wrong "$1 installs '$(one_line $found)'; packages_$3 has '$(one_line "${wanted[@]}")'"
}
expect README.md python3-venv python

known=" $(one_line "${packages_ci[@]}" "${packages_fuzz[@]}" "${packages_deb[@]}" "${packages_wheels[@]}" "${packages_wheel_libraries[@]}" \
  "${packages_sysroot[@]}" "${packages_bare[@]}" "${packages_python[@]}" libdnnl-dev \
  libheed-dev libheed-nn-dev libheed-model-dev) "
for file in ./*.md docs/*.md python/heed/*.py; do
  for package in $(installs "$file") $(grep -oE '\blib[a-z0-9.+-]+-dev\b' "$file"); do
    [[ $known == *" $package "* ]] || wrong "$file names the package $package, which scripts/packages.sh does not have"
  done
done

# Builds with pip, with ./run, and with the unpacked libraries for a wheel all link the same libraries.
for list in python run sysroot; do
  declare -n packages=packages_$list
  for package in "${packages_linked[@]}"; do
    [[ " ${packages[*]} " == *" $package "* ]] || wrong "packages_$list lacks $package"
  done
done

requires=$(sed -nE 's/^requires = \[(.*)\]/\1/p' pyproject.toml)
[[ $requires == "$(printf ', "%s"' "${pypi_build[@]}" | sed 's/^, //')" ]] ||
  wrong "pyproject.toml requires $requires; pypi_build has ${pypi_build[*]}"

# The Debian package depends on the libraries of its programs, so it needs no list.
if ! grep -q 'CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON' cmake/HeedDebian.cmake ||
  grep -q 'CPACK_DEBIAN_PACKAGE_DEPENDS' cmake/HeedDebian.cmake; then
  wrong "cmake/HeedDebian.cmake leaves dependencies to something else than dpkg-shlibdeps"
fi
exit $status
