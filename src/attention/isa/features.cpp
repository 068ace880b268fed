#include "attention/isa/features.hpp"

#include <array>
#include <cerrno>
#include <system_error>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
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

// __builtin_cpu_supports takes only string literals. It also checks that the system saves the registers.
// Clang 14 does not know "f16c", so this reads CPUID leaf 1, ECX bit 29. F16C uses the AVX registers.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// CPUID leaf 7, EDX. Linux gives a process the tile registers only on request:
// arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), once for all threads (Linux,
// Documentation/x86/xstate.rst).
int refusal_of_tiles() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  static const int refusal = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
  return refusal;
}
bool processor_has_amx(unsigned bits) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bits) == bits;
}
constexpr unsigned kAmxTile = 1U << 24, kAmxBf16 = 1U << 22;
bool has_amx(unsigned bits) { return processor_has_amx(bits) && refusal_of_tiles() == 0; }

constexpr std::array kFeatures{
    Feature{"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }},
    Feature{"fma", [] { return __builtin_cpu_supports("fma") != 0; }},
    Feature{"f16c", has_f16c},
    Feature{"avx512f", [] { return __builtin_cpu_supports("avx512f") != 0; }},
    Feature{"avx512bw", [] { return __builtin_cpu_supports("avx512bw") != 0; }},
    Feature{"avx512dq", [] { return __builtin_cpu_supports("avx512dq") != 0; }},
    Feature{"avx512vl", [] { return __builtin_cpu_supports("avx512vl") != 0; }},
    Feature{"avx512_vbmi", [] { return __builtin_cpu_supports("avx512vbmi") != 0; }},
    Feature{"avx512_vnni", [] { return __builtin_cpu_supports("avx512vnni") != 0; }},
    Feature{"avx512_bf16", [] { return __builtin_cpu_supports("avx512bf16") != 0; }},
    Feature{"amx_tile", [] { return has_amx(kAmxTile); }},
    Feature{"amx_bf16", [] { return has_amx(kAmxBf16); }},
};

#elif defined(__aarch64__)

// Bits from Linux's asm/hwcap.h: ASIMD, ASIMDHP (half precision), SVE; HWCAP2_BF16.
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

std::string why_missing(std::string_view feature) {
  if (processor_has(feature)) return "";
#if defined(__x86_64__)
  if (feature.starts_with("amx") && processor_has_amx(kAmxTile))
    return "the system refuses " + std::string(feature) + ": " +
           std::generic_category().message(refusal_of_tiles());
#endif
  return "the processor has no " + std::string(feature);
}

std::string_view processor_vendor() {
#if defined(__x86_64__)
  static const std::array<unsigned, 3> name = [] {
    std::array<unsigned, 3> letters{};
    unsigned most = 0;
    __get_cpuid(0, &most, &letters[0], &letters[2], &letters[1]);
    return letters;
  }();
  return {reinterpret_cast<const char*>(name.data()), sizeof name};
#else
  return "";
#endif
}

// The base family, plus the extended family if the base is 15. It is cached, because on a virtual machine the
// query takes microseconds.
int processor_family() {
#if defined(__x86_64__)
  static const int family = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0) return 0;
    const unsigned base = a >> 8 & 0xf;
    return static_cast<int>(base == 0xf ? base + (a >> 20 & 0xff) : base);
  }();
  return family;
#else
  return 0;
#endif
}

std::vector<std::string> processor_features() {
  std::vector<std::string> found;
  for (const Feature& one : kFeatures)
    if (one.has()) found.emplace_back(one.name);
  return found;
}

}  // namespace heed::detail::cpu
