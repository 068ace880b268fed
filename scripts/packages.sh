# The Debian packages that the project needs, by purpose. Names are the same on Debian 12 and 13 and Ubuntu 24.04.
# scripts/common.sh sources this file; a change here makes ./run and ./test check the packages again.
# tests/scripts/packages.sh compares documents and pyproject.toml with these lists.
# shellcheck shell=bash disable=SC2034

# Libraries that the code links to, beside C++'s own. Oniguruma and utf8proc are for tokenizers.
packages_linked=(libonig-dev libopenblas-dev libutf8proc-dev)
# For `pip install .`, which downloads CMake, Ninja and the requirements of pyproject.toml.
packages_python=(g++ "${packages_linked[@]}" libcli11-dev nlohmann-json3-dev python3-dev python3-venv)
pypi_build=('scikit-build-core>=0.10' 'nanobind>=2.4')
# The library and the command. pkg-config finds cpp-httplib (for `heed look --serve`), and Pango and Cairo (for
# pictures).
packages_run=(g++ cmake ninja-build "${packages_linked[@]}" libcli11-dev nlohmann-json3-dev libcpp-httplib-dev
  libpango1.0-dev pkg-config)
# Also their tests, the Python package and its tests.
packages_test=("${packages_run[@]}" libgtest-dev python3-dev python3-venv ca-certificates)
# The library and its fuzz targets, which clang compiles.
packages_fuzz=("${packages_run[@]}" clang libclang-rt-dev lld)
# Additional packages of ./test --full: fuzzing, browser tests, MPI ranks, the site, completion by shells, manual pages, and
# AArch64 on other machines.
packages_full=("${packages_test[@]}" clang libclang-rt-dev lld poppler-utils
  libopenmpi-dev openmpi-bin doxygen fish groff-base zsh)
# Ubuntu has no package of Chromium; there the tests in a browser are skipped by name.
if ! grep -qsx 'ID=ubuntu' /etc/os-release; then packages_full+=(chromium chromium-driver); fi
if [[ $(uname -m) == x86_64 ]]; then packages_full+=(g++-aarch64-linux-gnu googletest qemu-user); fi
# Additional packages of .ci/run: formatting (with exactly this version, because others differ; Debian 13 has none),
# coverage, and the benchmarks, which it compiles.
packages_ci=("${packages_full[@]}" clang-format-14 llvm libbenchmark-dev)

# For scripts/site, beside the command that it runs.
packages_site=("${packages_run[@]}" doxygen python3-venv)
# scripts/deb. CPack finds what a program depends on with file.
packages_deb=("${packages_run[@]}" dpkg-dev file lintian python3-dev python3-venv)
# scripts/wheels for AArch64 on another machine, and what it unpacks of AArch64's own; headers without a library are this
# machine's.
packages_wheels=(g++-aarch64-linux-gnu mmdebstrap qemu-user)
packages_sysroot=(libc6-dev libgomp1 "${packages_linked[@]}" libpango1.0-dev libpython3-dev libstdc++6 python3)
packages_target_python=(libpython3-dev libstdc++6 python3)
# What scripts/wheels builds the libraries of this machine's wheels with, and Debian's static libraries.
packages_wheel_libraries=(dpkg-dev g++ gcc make pkg-config xz-utils "${packages_linked[@]}" libcli11-dev nlohmann-json3-dev
  libpango1.0-dev)
# For scripts/bare.
packages_bare=(debootstrap)
