# The Debian packages that the project is built with, by what needs them. The names are the same on Debian 12 and
# Ubuntu 24.04. Sourced by scripts/common.sh; a change here makes ./run and ./test look again.
# shellcheck shell=bash disable=SC2034

# The library and the command. pkg-config finds cpp-httplib, for `heed look --serve`, and Pango and Cairo, for pictures;
# Oniguruma and utf8proc are for tokenizers.
packages_run=(g++ cmake ninja-build libopenblas-dev libcli11-dev nlohmann-json3-dev libcpp-httplib-dev libpango1.0-dev
  libonig-dev libutf8proc-dev pkg-config)
# And their tests. Python: its package, and the tests of that.
packages_test=("${packages_run[@]}" libgtest-dev python3-dev python3-venv ca-certificates)
# The library and its fuzz targets, which are clang's.
packages_fuzz=("${packages_run[@]}" clang libclang-rt-dev)
# And what ./test --full adds to the tests: fuzzing, tests in a browser, ranks of MPI, and AArch64 on other machines.
packages_full=("${packages_test[@]}" clang libclang-rt-dev chromium chromium-driver poppler-utils
  libopenmpi-dev openmpi-bin)
if [[ $(uname -m) == x86_64 ]]; then packages_full+=(g++-aarch64-linux-gnu googletest qemu-user); fi
# And what .ci/run adds: formatting (this version of it, for others format differently), coverage, and the benchmarks,
# which it compiles.
packages_ci=("${packages_full[@]}" clang-format-14 llvm libbenchmark-dev)
