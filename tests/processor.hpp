// Processor features as the system reports them, found in another way than the library finds them.
#pragma once

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace heed::test {

/// The kernel's instruction sets, best first.
inline constexpr std::array<std::string_view, 10> kInstructionSets{
    "amx_f32",  "amx",  "avx512bf16", "avx512",       "avx2",
    "neonbf16", "neon", "plain",      "amx_emulated", "amx_f32_emulated"};
/// Whether the processor, or the target in HEED_ISA, is emulated and so about thirty times slower.
inline bool is_emulated() {
#if defined(HEED_EMULATED)
  return true;
#else
  const char* isa = std::getenv("HEED_ISA");
  return isa != nullptr && std::string_view(isa).ends_with("emulated");
#endif
}
/// Whether bf16 calls multiply pairs of bf16, with weights rounded to bf16.
inline bool multiplies_bf16(std::string_view isa) { return isa.ends_with("bf16") || isa.starts_with("amx"); }
inline bool is_known_isa(std::string_view isa) {
  return std::find(kInstructionSets.begin(), kInstructionSets.end(), isa) != kInstructionSets.end();
}

/// The flags of the first processor in /proc/cpuinfo.
inline std::vector<std::string> processor_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::vector<std::string> flags;
    for (std::string flag; words >> flag;) flags.push_back(flag);
    return flags;
  }
  throw std::runtime_error("/proc/cpuinfo has no line of flags");
}

/// Whether the system lets this process use the registers of matrix tiles. Some systems refuse them although
/// the processor has them (arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA); Linux,
/// Documentation/x86/xstate.rst).
inline bool system_gives_tiles() {
#if defined(__x86_64__)
  return syscall(SYS_arch_prctl, 0x1023L, 18L) == 0;
#else
  return false;
#endif
}

/// Whether this machine has an instruction set of the kernel.
inline bool processor_has(std::string_view isa) {
  if (isa == "plain") return true;
#if defined(HEED_EMULATED) || defined(HEED_WITHOUT_EMULATIONS)
  if (isa.ends_with("emulated")) return false;  // the build has no emulations
#else
  if (isa.ends_with("emulated")) return true;
#endif
#if defined(__aarch64__)
  std::uint64_t features = 0;  // the register that reports BF16 in bits 44 to 47
  asm("mrs %0, id_aa64isar1_el1" : "=r"(features));
  return isa == "neon" || (isa == "neonbf16" && (features >> 44 & 15) != 0);
#elif defined(__x86_64__)
  std::vector<std::string_view> needed{"avx2", "fma", "f16c"};
  if (isa.starts_with("avx512") || isa.starts_with("amx"))
    for (const char* flag : {"avx512f", "avx512bw", "avx512dq", "avx512vl"}) needed.emplace_back(flag);
  if (isa == "avx512bf16" || isa.starts_with("amx")) needed.emplace_back("avx512_bf16");
  if (isa.starts_with("amx"))
    for (const char* flag : {"amx_tile", "amx_bf16"}) needed.emplace_back(flag);
  const std::vector<std::string> flags = processor_flags();
  return !isa.starts_with("neon") && (!isa.starts_with("amx") || system_gives_tiles()) &&
         std::all_of(needed.begin(), needed.end(), [&](std::string_view flag) {
           return std::find(flags.begin(), flags.end(), flag) != flags.end();
         });
#else
  return false;
#endif
}

/// Whether bf16 pairs multiply more slowly than f32, as on every Intel processor. The target then exists but
/// is not chosen.
inline bool has_slow_pairs() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("vendor_id")) return line.ends_with("GenuineIntel");
  return false;
}

/// The best instruction set of this processor.
inline std::string_view best_instruction_set() {
  return *std::find_if(kInstructionSets.begin(), kInstructionSets.end(), [](std::string_view isa) {
    return processor_has(isa) && !(isa == "avx512bf16" && has_slow_pairs());
  });
}

}  // namespace heed::test
