#include "attention/cpu/targets/features.hpp"

#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace heed::detail::cpu {
namespace {

struct Feature {
  std::string_view name;
  bool (*has)();
};

#if defined(__x86_64__)

// __builtin_cpu_supports takes string literals only, and asks the system too whether it saves the registers.
// Clang 14 does not know "f16c": CPUID leaf 1, ECX bit 29. Its registers are those of AVX.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

constexpr std::array kFeatures{
    Feature{"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }},
    Feature{"fma", [] { return __builtin_cpu_supports("fma") != 0; }},
    Feature{"f16c", has_f16c},
    Feature{"avx512f", [] { return __builtin_cpu_supports("avx512f") != 0; }},
    Feature{"avx512bw", [] { return __builtin_cpu_supports("avx512bw") != 0; }},
    Feature{"avx512dq", [] { return __builtin_cpu_supports("avx512dq") != 0; }},
    Feature{"avx512vl", [] { return __builtin_cpu_supports("avx512vl") != 0; }},
    Feature{"avx512_bf16", [] { return __builtin_cpu_supports("avx512bf16") != 0; }},
};

#elif defined(__aarch64__)

// Bits of Linux' asm/hwcap.h: ASIMD, ASIMDHP (half precision), SVE; HWCAP2_BF16.
constexpr std::array kFeatures{
    Feature{"neon", [] { return (getauxval(AT_HWCAP) & (1ul << 1)) != 0; }},
    Feature{"fp16", [] { return (getauxval(AT_HWCAP) & (1ul << 10)) != 0; }},
    Feature{"sve", [] { return (getauxval(AT_HWCAP) & (1ul << 22)) != 0; }},
    Feature{"bf16", [] { return (getauxval(AT_HWCAP2) & (1ul << 14)) != 0; }},
};

#else

constexpr std::array<Feature, 0> kFeatures{};

#endif

}  // namespace

bool processor_has(std::string_view feature) {
  for (const Feature& one : kFeatures)
    if (one.name == feature) return one.has();
  return false;
}

std::vector<std::string> processor_features() {
  std::vector<std::string> found;
  for (const Feature& one : kFeatures)
    if (one.has()) found.emplace_back(one.name);
  return found;
}

}  // namespace heed::detail::cpu
