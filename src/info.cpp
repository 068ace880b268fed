#include "heed/info.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "heed/attention.hpp"
#include "heed/parallel.hpp"
#include "heed/version.hpp"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace heed {
namespace {

std::string architecture() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

// "model name" is what Linux prints for x86; others give no name that means anything to a person.
std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return architecture();
}

std::vector<std::string> processor_features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  // __builtin_cpu_supports takes string literals only; it asks the system too whether it saves the registers.
  if (__builtin_cpu_supports("avx2")) found.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) found.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) found.emplace_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) found.emplace_back("avx512bw");
  if (__builtin_cpu_supports("avx512dq")) found.emplace_back("avx512dq");
  if (__builtin_cpu_supports("avx512vl")) found.emplace_back("avx512vl");
  if (__builtin_cpu_supports("avx512bf16")) found.emplace_back("avx512_bf16");
#elif defined(__aarch64__)
  // Bits of Linux' asm/hwcap.h: ASIMD, ASIMDHP (half precision), SVE; HWCAP2_BF16.
  const unsigned long bits = getauxval(AT_HWCAP);
  const unsigned long bits2 = getauxval(AT_HWCAP2);
  if (bits & (1ul << 1)) found.emplace_back("neon");
  if (bits & (1ul << 10)) found.emplace_back("fp16");
  if (bits & (1ul << 22)) found.emplace_back("sve");
  if (bits2 & (1ul << 14)) found.emplace_back("bf16");
#endif
  return found;
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

}  // namespace

Info info() {
  Info result;
  result.version = version();
  result.compiler = HEED_COMPILER;
  result.build_type = HEED_BUILD_TYPE;
  result.flags = trimmed(HEED_BUILD_FLAGS);
  result.processor = processor_model();
  result.features = processor_features();
  const Tensor one({1, 1});
  const AttentionResult call = attention(one, one, one);
  result.kernel = call.kernel == Kernel::fused ? "fused" : "reference";
  result.isa = call.isa;
  result.threads = default_threads();
  return result;
}

}  // namespace heed
