# Warnings, sanitizers and coverage, in an interface target that every target of the project links.
add_library(heed_compile_options INTERFACE)
target_compile_options(heed_compile_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion)
# GCC 12 warns wrongly of overlapping copies in `"text" + std::to_string(n)` (GCC bug 105651, fixed in 13).
set(gcc_before_13 $<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>)
target_compile_options(heed_compile_options INTERFACE $<${gcc_before_13}:-Wno-restrict>)
if(HEED_WERROR)
  target_compile_options(heed_compile_options INTERFACE -Werror)
endif()
# From GCC 13 on, these options are a part of -O2 and -O3. A precompiled header serves sources with -O1 only if they have
# them too.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(gcc_from_13 $<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>)
  target_compile_options(heed_compile_options INTERFACE
    $<${gcc_from_13}:-munroll-only-small-loops> $<${gcc_from_13}:-mvzeroupper>)
endif()
# GCC collects its own garbage from 1 GB on, not 128 MB: that takes 6 % off the compilation for 15 % more memory. The code is
# the same.
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(heed_compile_options INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=300>)
endif()

set(sanitizers "")
if(HEED_SANITIZE STREQUAL "address")
  set(sanitizers address,undefined)
elseif(HEED_SANITIZE STREQUAL "thread")
  set(sanitizers thread)
elseif(HEED_SANITIZE)
  message(FATAL_ERROR "HEED_SANITIZE is '${HEED_SANITIZE}'; address or thread was expected")
endif()
if(sanitizers)
  target_compile_options(heed_compile_options INTERFACE -fsanitize=${sanitizers} -fno-sanitize-recover=all
                                                        -fno-omit-frame-pointer)
  # Line numbers in reports take a tenth of the compilation. CI, which measures coverage, does without.
  target_compile_options(heed_compile_options INTERFACE $<IF:$<BOOL:${HEED_COVERAGE}>,-g0,-g1>)
  target_link_options(heed_compile_options INTERFACE -fsanitize=${sanitizers})
endif()

if(HEED_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "HEED_BUILD_FUZZERS needs clang, whose libFuzzer it uses; the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  # A search is guided by comparisons, whose calls slow all code down. CTest's runs use none, and no table of addresses,
  # which fills the programs with relocations; heed_fuzzed adds their counters.
  if(HEED_FUZZ_SEARCH)
    target_compile_options(heed_compile_options INTERFACE -fsanitize=fuzzer-no-link)
  endif()
  target_link_options(heed_compile_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A program with a sanitizer is linked in a sixth of the time. Only heed's own builds use it.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND PROJECT_IS_TOP_LEVEL AND (HEED_BUILD_FUZZERS OR HEED_SANITIZE))
  find_program(HEED_LLD ld.lld)
  mark_as_advanced(HEED_LLD)
  if(HEED_LLD)
    target_link_options(heed_compile_options INTERFACE -fuse-ld=lld)
  endif()
endif()

# heed_fuzzed adds the counters that guide the fuzzer, which take a tenth of the compilation, to the libraries. Fuzz targets
# link nothing of the command.
add_library(heed_fuzzed INTERFACE)
if(HEED_BUILD_FUZZERS AND NOT HEED_FUZZ_SEARCH)
  target_compile_options(heed_fuzzed INTERFACE -fsanitize-coverage=inline-8bit-counters)
endif()

# heed_measured adds coverage counters to the sources whose coverage is measured. The tests need no counters.
add_library(heed_measured INTERFACE)
if(HEED_COVERAGE)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "HEED_COVERAGE needs clang, whose counters it uses; the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  # Every program and library adds to a profile there, whatever its environment and working folder. Two with different
  # counters can have the same %m, so the target's name stands before it.
  set(counters "-fprofile-instr-generate=${PROJECT_BINARY_DIR}/profiles/$<TARGET_PROPERTY:NAME>-%m.profraw")
  target_link_options(heed_compile_options INTERFACE ${counters})
  target_compile_options(heed_measured INTERFACE ${counters} -fcoverage-mapping)
endif()

# Shortens compilation. Headers that most sources include are precompiled. Sources that instantiate the same slow
# templates are compiled together. The command, the tests, the examples and those parts of the library that run for a moment are
# optimised less. With OFF, each source is compiled alone.
option(HEED_QUICK_BUILD "Precompile headers, compile some sources together, and what runs for a moment with -O1" ON)
add_library(heed_quick_build INTERFACE)
set(optimised_less "")
# A header that was precompiled without optimisation, or for size, serves no source that is optimised.
if(HEED_QUICK_BUILD AND NOT sanitizers AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[23]")
  set(optimised_less $<$<CONFIG:Release>:-O1>)
endif()
if(HEED_QUICK_BUILD)
  # With -O1, GCC 12 also warns wrongly of `std::string("text") + name`.
  target_compile_options(heed_quick_build INTERFACE ${optimised_less}
    $<${gcc_before_13}:-Wno-array-bounds> $<${gcc_before_13}:-Wno-stringop-overflow> $<${gcc_before_13}:-Wno-stringop-overread>)
endif()

# Under a sanitizer, optimising takes two thirds of the compilation, and saves less than that in the tests. There only
# what computes for long is optimised: targets that link heed_computes after heed_compile_options, and the sources of
# heed_computing.
add_library(heed_computes INTERFACE)
if(sanitizers AND HEED_QUICK_BUILD AND NOT HEED_FUZZ_SEARCH)
  set(quick_under_sanitizers ON)
  target_compile_options(heed_compile_options INTERFACE -O0)
  target_compile_options(heed_computes INTERFACE -O1)
endif()

# heed_computing(SOURCE…): sources that compute for long.
function(heed_computing)
  if(quick_under_sanitizers)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O1 SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# heed_precompile(TARGET HEADER) precompiles HEADER for all sources of TARGET without SKIP_PRECOMPILE_HEADERS.
function(heed_precompile target header)
  if(HEED_QUICK_BUILD)
    target_precompile_headers(${target} PRIVATE ${header})
  endif()
endfunction()

# heed_compile_together(TARGET GROUP SOURCE…) compiles the sources as one where HEED_QUICK_BUILD is on.
function(heed_compile_together target group)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HEED_QUICK_BUILD} UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
endfunction()
