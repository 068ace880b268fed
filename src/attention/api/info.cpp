#include "heed/info.hpp"

#include <sys/utsname.h>

#include <fstream>
#include <string_view>

#include "attention/isa/features.hpp"
#include "heed/attention/attention.hpp"
#include "heed/parallel.hpp"
#include "heed/version.hpp"

namespace heed {
namespace {

std::string architecture() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

// The "model name" that Linux reports on x86; other architectures give no readable name.
std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return architecture();
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
  result.features = detail::cpu::processor_features();
  const Tensor one({1, 1});
  const AttentionResult call = attention(one, one, one);
  result.kernel = call.kernel == Kernel::fused ? "fused" : "reference";
  result.isa = call.isa;
  result.threads = default_threads();
  return result;
}

}  // namespace heed
