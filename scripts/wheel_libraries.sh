# The libraries that wheels contain, small and static, so that a wheel needs the C library alone. Sourced by scripts/wheels.
#
# Debian's sources give OpenBLAS, of which heed calls matrix products; HarfBuzz and Pango, which Debian has as shared libraries
# alone; and cpp-httplib as a header, without the TLS and the compression of Debian's library. Debian's static libraries give
# the rest: Cairo, GLib and what they need. For another architecture these are in a sysroot, $target.
# shellcheck shell=bash disable=SC2154

# Static libraries for pictures, each before those that it needs.
picture_libraries=(pangocairo-1.0 pangoft2-1.0 pango-1.0 harfbuzz cairo fontconfig freetype png16 pixman-1 fribidi expat
  brotlidec brotlicommon gio-2.0 gobject-2.0 gmodule-2.0 glib-2.0 ffi pcre2-8 z)
# OpenBLAS's kernels, by processor: the plain ones first. Other processors take the nearest of these.
blas_kernels_x86_64=(PRESCOTT HASWELL SKYLAKEX) blas_kernels_aarch64=(ARMV8 NEOVERSEN1 NEOVERSEV1)

# fetch_sources NAME…: unpacks Debian's sources, from the mirrors of this machine, which apt-get verifies.
fetch_sources() {
  local apt=$work/apt
  if [[ $work/sources/fetched -nt $root/scripts/wheel_libraries.sh ]]; then return; fi
  rm -rf "$work/sources"
  mkdir -p "$apt/lists/partial" "$apt/cache" "$work/sources"
  # shellcheck disable=SC2016  # apt-get replaces these
  apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    grep -v cdrom: >"$apt/sources.list" || fail "scripts/wheels needs Debian's sources, and apt knows no mirror of Debian"
  local settings=(-o Dir::State::Lists="$apt/lists" -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=)
  quietly "reading Debian's list of sources" apt-get "${settings[@]}" update
  (cd "$work/sources" && quietly "fetching sources" apt-get "${settings[@]}" source "$@")
  touch "$work/sources/fetched"
}

# make_blas: C's products of f32 and f64, which are all that heed calls of OpenBLAS. A processor's table names ten times as many
# kernels as they need. The others are not compiled, and a call of one would end the process.
make_blas() {
  local blas=$work/blas core tools='' cross=()
  local -n cores=blas_kernels_$architecture
  if [[ $architecture != "$here" ]]; then
    tools=$architecture-linux-gnu-
    cross=("TARGET=${cores[0]}" HOSTCC=gcc "CC=${tools}gcc")
  fi
  rm -rf "$blas" && cp -r "$work"/sources/openblas-*/ "$blas"
  # OpenBLAS asks the compiler dozens of questions whenever make starts anew, so one make starts all others.
  cat >"$blas/products.mk" <<'END'
include Makefile
products:
	$(MAKE) -C driver/others libs
	$(MAKE) -C driver/level3 $(foreach t,s d,$(foreach f,nn nt tn tt,$(t)gemm_$(f).o $(t)gemm_thread_$(f).o))
	$(MAKE) -C interface cblas_sgemm.o cblas_dgemm.o
	for core in $(DYNAMIC_CORE); do $(MAKE) GOTOBLAS_MAKEFILE= -C kernel -f products.mk TARGET_CORE=$$core products || exit 1; done
END
  printf '%s\n' 'include Makefile' 'products: $(filter sgemm_% dgemm_% setparam_%,$(BLASOBJS))' >"$blas/kernel/products.mk"
  quietly "building OpenBLAS" make -C "$blas" -f products.mk -s -j"$(nproc)" products DYNAMIC_ARCH=1 "DYNAMIC_LIST=${cores[*]:1}" \
    "${cross[@]}" BUILD_SINGLE=1 BUILD_DOUBLE=1 ONLY_CBLAS=1 NO_LAPACK=1 NO_LAPACKE=1 NO_SHARED=1 NOFORTRAN=1 NO_AFFINITY=1 \
    NO_WARMUP=1 USE_THREAD=1 USE_OPENMP=0 NUM_THREADS=128
  {
    echo 'void abort(void); static void absent(void) { abort(); }'
    for core in "${cores[@]}"; do
      "${tools}nm" -u "$blas/kernel/setparam_$core.o" | grep -oE "\w+_$core$" | grep -vE '^[sd]gemm_' |
        sed 's/.*/void &(void) __attribute__((alias("absent")));/'
    done
  } | "${tools}gcc" -c -Os -x c - -o "$blas/absent.o"
  "${tools}ar" rcs "$libraries/lib/libopenblas.a" "$blas"/{absent,interface/*,driver/*/*,kernel/*}.o
}

# make_expat: Debian's, but Expat's only random number comes from getrandom. Its arc4random_buf needs a C library from 2.36 on.
make_expat() {
  local tools=
  if [[ $architecture != "$here" ]]; then tools=$architecture-linux-gnu-; fi
  "${tools}objcopy" --redefine-sym arc4random_buf=heed_random "$1" "$libraries/lib/libexpat.a"
  printf '%s\n' '#include <stdlib.h>' '#include <sys/random.h>' \
    'void heed_random(void* to, size_t size) { if (getrandom(to, size, 0) != (ssize_t)size) abort(); }' |
    "${tools}gcc" -c -Os -x c - -o "$work/random.o"
  "${tools}ar" r "$libraries/lib/libexpat.a" "$work/random.o"
}

# build_meson NAME ARCHIVE… OPTION…: builds these static libraries of one of the sources. What else the sources hold, such as
# programs and HarfBuzz's library of subsets, takes as long and is not needed. Headers are those of Debian's packages.
build_meson() {
  local name=$1 archives=() flags="-Os -ffunction-sections -fdata-sections" cross=() link="-Wl,-rpath-link,$from:${from/usr\/}"
  shift
  while [[ $1 != -* ]]; do archives+=("$1") && shift; done
  if [[ $architecture != "$here" ]]; then
    printf '%s\n' '[binaries]' "c = '$architecture-linux-gnu-gcc'" "cpp = '$architecture-linux-gnu-g++'" \
      "ar = '$architecture-linux-gnu-ar'" "strip = '$architecture-linux-gnu-strip'" "pkg-config = 'pkg-config'" \
      '[properties]' "pkg_config_libdir = ['${pkg_config//:/"', '"}']" \
      '[built-in options]' "c_link_args = '$link'" "cpp_link_args = c_link_args" \
      '[host_machine]' "system = 'linux'" "cpu_family = '$architecture'" "cpu = '$architecture'" "endian = 'little'" >"$work/cross"
    cross=(--cross-file "$work/cross")
  fi
  rm -rf "$work/meson"
  PKG_CONFIG_LIBDIR=$pkg_config PKG_CONFIG_SYSTEM_INCLUDE_PATH=$system/usr/include quietly "configuring $name" \
    meson setup "$work/meson" "$work/sources/$name"-*/ --default-library static \
    --buildtype plain --wrap-mode nodownload -Dauto_features=disabled "-Dc_args=$flags" "-Dcpp_args=$flags" \
    "${cross[@]}" "$@"
  quietly "building $name" ninja -C "$work/meson" "${archives[@]}"
  (cd "$work/meson" && cp "${archives[@]}" "$libraries/lib/")
}

# pkg_config_file FILE VERSION [LINE…]
pkg_config_file() { printf '%s\n' "Name: $(basename "$1" .pc)" 'Description: for wheels' "Version: $2" "${@:3}" >"$1"; }

# make_libraries: fills $libraries for $architecture: lib/*.a, the licences, and pkgconfig, by which alone CMake finds pictures
# and --serve.
make_libraries() {
  local name flags pkg_config system=
  if [[ $libraries/made -nt $root/scripts/wheel_libraries.sh ]]; then return; fi
  need_packages wheel_libraries
  if [[ $architecture != "$here" ]]; then system=$target; fi
  local from=$system/usr/lib/$architecture-linux-gnu
  pkg_config=$from/pkgconfig:$system/usr/share/pkgconfig
  rm -rf "$libraries"
  mkdir -p "$libraries"/{lib,include,pkgconfig,licenses}
  fetch_sources openblas cpp-httplib harfbuzz pango1.0
  make_blas
  make_expat "$from/libexpat.a"
  build_meson harfbuzz src/libharfbuzz.a -Dglib=enabled -Dfreetype=enabled -Dtests=disabled
  build_meson pango1.0 pango/libpango{,ft2,cairo}-1.0.a -Dfontconfig=enabled -Dfreetype=enabled -Dcairo=enabled
  for name in "${picture_libraries[@]}"; do
    if [[ ! -e $libraries/lib/lib$name.a ]]; then cp -L "$from/lib$name.a" "$libraries/lib/"; fi
  done
  cp "$work"/sources/cpp-httplib-*/httplib.h "$libraries/include/"
  pkg_config_file "$libraries/pkgconfig/cpp-httplib.pc" 0 "Cflags: -I$libraries/include"
  flags=$(PKG_CONFIG_LIBDIR=$pkg_config PKG_CONFIG_SYSTEM_INCLUDE_PATH=$system/usr/include pkg-config --cflags pangocairo)
  pkg_config_file "$libraries/pkgconfig/pangocairo.pc" 1.50 "Cflags: $flags" "Libs: -L$libraries/lib ${picture_libraries[*]/#/-l} -lm"
  for name in pdf png svg; do pkg_config_file "$libraries/pkgconfig/cairo-$name.pc" 1.16; done
  copy_licenses "$system"
  touch "$libraries/made"
}

# copy_licenses SYSTEM: what each library asks its users to pass on. Two libraries that auditwheel adds are among them.
copy_licenses() {
  local name
  for name in openblas cpp-httplib harfbuzz pango1.0; do
    cp "$work/sources/$name"-*/debian/copyright "$libraries/licenses/$name"
  done
  for name in libcairo2-dev libfontconfig-dev libfreetype-dev libpng-dev libpixman-1-dev libfribidi-dev libexpat1-dev \
    libbrotli-dev libglib2.0-dev libffi-dev libpcre2-dev zlib1g-dev libonig-dev libutf8proc-dev; do
    cp -L "$1/usr/share/doc/$name/copyright" "$libraries/licenses/${name%-dev}"
  done
}
