#include "attention/cpu/targets/dispatch.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "attention/cpu/targets/features.hpp"
#include "attention/cpu/targets/units.hpp"
#include "heed/error.hpp"
#include "heed/targets.hpp"

namespace heed::detail::cpu {
namespace {

bool can_run(const TargetEntry& target, const std::function<bool(std::string_view)>& has) {
  return std::all_of(target.required.begin(), target.required.end(), has);
}

// One Kernels a target, made once.
const Kernels& kernels_of(const TargetEntry& target) {
  static const std::vector<Kernels> all = [] {
    std::vector<Kernels> made;
    for (const TargetEntry& entry : target_entries()) made.push_back(entry.kernels());
    return made;
  }();
  return all[static_cast<std::size_t>(&target - target_entries().data())];
}

// `said_by` begins the sentence: "the environment variable HEED_ISA".
const TargetEntry& named_target(std::string_view name, const std::string& said_by) {
  std::string names;
  for (const TargetEntry& target : target_entries()) {
    if (!can_run(target, processor_has)) continue;
    if (target.name == name) return target;
    names += (names.empty() ? "" : ", ") + std::string(target.name);
  }
  throw Error(ErrorCode::invalid_argument,
              said_by + " is '" + std::string(name) + "'; this machine has " + names);
}

const Kernels* choose() {
  const char* wanted = std::getenv("HEED_ISA");
  if (wanted == nullptr || *wanted == '\0') return &kernels_of(best_target(processor_has));
  return &kernels_of(named_target(wanted, "the environment variable HEED_ISA"));
}

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels = choose();
  return kernels;
}

}  // namespace

const std::vector<TargetEntry>& target_entries() {
  static const std::vector<TargetEntry> entries = {
#if defined(__x86_64__)
    {"avx512bf16",
     "vectors of 16 floats, dot products of bf16 pairs",
     {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"},
     avx512bf16_kernels},
    {"avx512",
     "vectors of 16 floats",
     {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
     avx512_kernels},
    {"avx2", "vectors of 8 floats", {"avx2", "fma", "f16c"}, avx2_kernels},
#elif defined(__aarch64__)
    {"neon", "vectors of 4 floats", {"neon"}, neon_kernels},
#endif
    {"plain", "plain C++, four floats at a time; runs anywhere", {}, plain_kernels},
  };
  return entries;
}

const TargetEntry& best_target(const std::function<bool(std::string_view)>& has) {
  const auto& entries = target_entries();
  return *std::find_if(entries.begin(), entries.end(),
                       [&](const TargetEntry& target) { return can_run(target, has); });
}

const Kernels& kernels() { return *chosen().load(std::memory_order_acquire); }

}  // namespace heed::detail::cpu

namespace heed {

std::vector<Target> targets() {
  using namespace detail::cpu;
  std::vector<Target> all;
  const std::string_view chosen_name = kernels().name;
  for (const TargetEntry& entry : target_entries())
    all.push_back({std::string(entry.name),
                   std::string(entry.description),
                   {entry.required.begin(), entry.required.end()},
                   can_run(entry, processor_has),
                   entry.name == chosen_name});
  return all;
}

void set_target(std::string_view name) {
  using namespace detail::cpu;
  const Kernels& wanted = kernels_of(named_target(name, "target"));
  chosen().store(&wanted, std::memory_order_release);
}

}  // namespace heed
