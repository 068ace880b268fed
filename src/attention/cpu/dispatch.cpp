#include "attention/cpu/dispatch.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include "attention/cpu/units.hpp"
#include "heed/error.hpp"

namespace heed::detail::cpu {
namespace {

// From the best on. __builtin_cpu_supports also asks whether the system saves the registers.
std::vector<Kernels> available() {
  std::vector<Kernels> units;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) units.push_back(avx512bf16_kernels());
  if (avx512) units.push_back(avx512_kernels());
  if (avx2) units.push_back(avx2_kernels());
#elif defined(__aarch64__)
  units.push_back(neon_kernels());
#endif
  units.push_back(plain_kernels());
  return units;
}

Kernels choose() {
  const std::vector<Kernels> units = available();
  const char* wanted = std::getenv("HEED_ISA");
  if (wanted == nullptr || *wanted == '\0') return units.front();
  std::string names;
  for (const Kernels& unit : units) {
    if (std::string(wanted) == unit.name) return unit;
    names += (names.empty() ? "" : ", ") + std::string(unit.name);
  }
  throw Error(ErrorCode::invalid_argument, "the environment variable HEED_ISA is '" + std::string(wanted) +
                                               "'; this machine has " + names);
}

}  // namespace

const Kernels& kernels() {
  static const Kernels chosen = choose();
  return chosen;
}

}  // namespace heed::detail::cpu
