# The fused kernel: one source, compiled once for each unit (an instruction set, or a tile format of it). A target is a
# list of units, chosen at run time (src/attention/isa/dispatch.cpp).
set(HEED_KERNELS "all" CACHE STRING
    "Kernels to build: all of this architecture, native: those that this processor takes, or runnable: those that it can run")
set_property(CACHE HEED_KERNELS PROPERTY STRINGS all native runnable)
set(HEED_PROCESSOR "" CACHE STRING "Which processor a native build is for; ./run sets it, so that another one is seen")
if(NOT HEED_KERNELS MATCHES "^(all|native|runnable)$")
  message(FATAL_ERROR "HEED_KERNELS is '${HEED_KERNELS}'; all, native or runnable was expected")
endif()

# Loops and functions are aligned to cache lines. Other placements cost up to half of the speed on Zen 5.
set(kernel_flags -O3 -ffp-contract=off -fno-exceptions -fno-lto -falign-functions=64 -falign-loops=64)
if(HEED_SANITIZE OR HEED_BUILD_FUZZERS)
  set(kernel_flags -O1 -ffp-contract=off -fno-exceptions -fno-lto)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Clang takes minutes to check every operation of unrolled loops; GCC's sanitizer builds do check them.
    list(APPEND kernel_flags -fno-sanitize=undefined)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND kernel_flags -Wno-uninitialized -Wno-maybe-uninitialized)  # GCC 12's AVX-512 intrinsics cause these
endif()
set(uncounted_flags "")
if(HEED_COVERAGE)  # other units count the same lines, and counters take minutes to compile
  set(uncounted_flags -fno-profile-instr-generate -fno-coverage-mapping)
endif()

set(avx2_flags -mavx2 -mfma -mf16c)
set(avx512_flags -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
set(avx512bf16_flags ${avx512_flags} -mavx512bf16)
# AMX tiles are written as assembly, which needs no compiler flag.
set(unit_flags_avx2 ${avx2_flags} ${uncounted_flags})
set(unit_flags_avx512 ${avx512_flags} ${uncounted_flags})
foreach(unit IN ITEMS avx512bf16 avx512bf16_tiles amx amx_f32 amx_f16)
  set(unit_flags_${unit} ${avx512bf16_flags})
endforeach()
set(unit_flags_plain "")
set(unit_flags_neon "")
set(unit_flags_neonbf16 -march=armv8.2-a+bf16)
foreach(unit IN ITEMS amx_emulated amx_f32_emulated amx_f16_emulated)
  set(unit_flags_${unit} -O1)  # emulations are slow however they are compiled
endforeach()

# heed_native_units(VARIABLE) sets it to the units of the target that this processor uses, and `plain`. The features are
# those in /proc/cpuinfo, with the same names as in dispatch.cpp. Without /proc/cpuinfo all units are built.
function(heed_native_units variable)
  set(units avx512 avx512bf16 avx512bf16_tiles amx amx_f32 amx_f16 avx2)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    file(STRINGS /proc/cpuinfo vendor REGEX "^vendor_id" LIMIT_COUNT 1)
    if(flags MATCHES " amx_bf16" AND flags MATCHES " avx512_bf16")
      set(units avx512 amx amx_f32 amx_f16)
    elseif(flags MATCHES " avx512_bf16" AND NOT vendor MATCHES "GenuineIntel")
      set(units avx512 avx512bf16 avx512bf16_tiles)
    elseif(flags MATCHES " avx512dq" AND flags MATCHES " avx512vl")
      set(units avx512)
    elseif(flags MATCHES " avx2")
      set(units avx2)
    else()
      set(units "")
    endif()
  endif()
  set(${variable} ${units} plain PARENT_SCOPE)
endfunction()

# heed_runnable_units(VARIABLE) sets it to all units that this processor can run: what tests under a sanitizer need.
function(heed_runnable_units variable)
  set(units avx512 avx512bf16 avx512bf16_tiles amx amx_f32 amx_f16 avx2)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    if(NOT flags MATCHES " amx_bf16")
      list(REMOVE_ITEM units amx amx_f32 amx_f16)
    endif()
    if(NOT flags MATCHES " avx512_bf16")
      list(REMOVE_ITEM units avx512bf16 avx512bf16_tiles amx amx_f32 amx_f16)
    endif()
    if(NOT (flags MATCHES " avx512dq" AND flags MATCHES " avx512vl"))
      list(REMOVE_ITEM units avx512 avx512bf16 avx512bf16_tiles amx amx_f32 amx_f16)
    endif()
    if(NOT flags MATCHES " avx2")
      set(units "")
    endif()
  endif()
  set(${variable} ${units} plain PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(kernel_units avx512 avx512bf16 avx2 plain amx amx_f32 amx_f16 avx512bf16_tiles)
  if(HEED_KERNELS STREQUAL "native")
    heed_native_units(kernel_units)
    if(NOT kernel_units STREQUAL "plain")
      list(APPEND unit_flags_plain -O1)  # a fallback if the build is moved to another processor
    endif()
  endif()
  if(HEED_KERNELS STREQUAL "runnable")
    heed_runnable_units(kernel_units)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(kernel_units neon neonbf16 plain)
else()
  set(kernel_units plain)
endif()
if(HEED_BUILD_TESTS OR HEED_BUILD_FUZZERS)
  list(APPEND kernel_units amx_emulated amx_f32_emulated amx_f16_emulated)  # only for tests
endif()

set(HEED_KERNEL_UNITS "${kernel_units}" CACHE INTERNAL "The units that are built")

# heed_add_kernels(TARGET) adds the units and dispatch.cpp, which tests HEED_UNIT_<NAME>.
function(heed_add_kernels target)
  set(definitions "")
  foreach(unit IN LISTS kernel_units)
    set(source attention/isa/${unit}.cpp)
    target_sources(${target} PRIVATE ${source})
    set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                                COMPILE_OPTIONS "${kernel_flags};${unit_flags_${unit}}")
    string(TOUPPER "HEED_UNIT_${unit}" definition)
    list(APPEND definitions ${definition})
  endforeach()
  target_sources(${target} PRIVATE attention/isa/dispatch.cpp)
  set_source_files_properties(attention/isa/dispatch.cpp PROPERTIES
                              COMPILE_DEFINITIONS "${definitions}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()
