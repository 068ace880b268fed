#include "attention/isa/dispatch.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>

#include "attention/isa/features.hpp"
#include "attention/isa/units.hpp"
#include "heed/attention/targets.hpp"
#include "heed/error.hpp"

namespace heed::detail::cpu {
namespace {

bool can_run(const TargetEntry& target, const std::function<bool(std::string_view)>& has) {
  return std::all_of(target.required.begin(), target.required.end(), has);
}

// Returns the kernels of a target that can run. They are made once, and for no other target: even the code
// that lists a unit's kernels needs the unit's instruction set.
const TargetKernels& kernels_of(const TargetEntry& target) {
  static const std::vector<std::optional<TargetKernels>> all = [] {
    std::vector<std::optional<TargetKernels>> kernels(target_entries().size());
    for (std::size_t i = 0; i < kernels.size(); ++i)
      if (can_run(target_entries()[i], processor_has)) kernels[i].emplace(target_entries()[i]);
    return kernels;
  }();
  return *all[static_cast<std::size_t>(&target - target_entries().data())];
}

// `said_by` begins the message: "the environment variable HEED_ISA".
const TargetEntry& named_target(std::string_view name, std::string_view said_by) {
  std::string names;
  for (const TargetEntry& target : target_entries()) {
    if (!can_run(target, processor_has)) continue;
    if (target.name == name) return target;
    names += (names.empty() ? "" : ", ") + std::string(target.name);
  }
  throw Error(ErrorCode::invalid_argument,
              std::string(said_by) + " is '" + std::string(name) + "'; this machine has " + names);
}

const TargetKernels* choose() {
  const char* wanted = std::getenv("HEED_ISA");
  if (wanted == nullptr || *wanted == '\0')
    return &kernels_of(best_target(processor_has, processor_vendor()));
  return &kernels_of(named_target(wanted, "the environment variable HEED_ISA"));
}

std::atomic<const TargetKernels*>& chosen() {
  static std::atomic<const TargetKernels*> kernels = choose();
  return kernels;
}

// Says why a target is not used.
std::string why_not(const TargetEntry& entry) {
  for (const std::string_view feature : entry.required)
    if (const std::string why = why_missing(feature); !why.empty()) return why;
  if (!entry.passed_over_on.empty() && entry.passed_over_on == processor_vendor())
    return std::string(entry.passed_over_because);
  return "HEED_ISA or set_target can select it";
}

// HEED_UNIT_<NAME> tells that a unit is built (cmake/HeedKernels.cmake). The measurements behind the formats
// are products alone, or whole calls that alternate (docs/kernel.md).
[[maybe_unused]] constexpr FormatEntry kTilesOfBf16 = {
    "bf16", "matrix tiles", "3,126 GFLOP/s per core, f32 has 234 (Granite Rapids)"};
[[maybe_unused]] constexpr FormatEntry kPartsOfF32 = {
    "f32", "three bf16 parts in matrix tiles, from 128 rows per key head on",
    "1.1 to 1.5 times as fast as f32 and more accurate (Granite Rapids)"};
[[maybe_unused]] constexpr FormatEntry kPartsOfF16 = {
    "f16", "two bf16 parts in matrix tiles, from 128 rows per key head on",
    "1.3 to 2.0 times as fast as f32 and more accurate (Granite Rapids)"};
[[maybe_unused]] constexpr FormatEntry kPairsOfBf16 = {"bf16", "dot products of pairs",
                                                       "505 GFLOP/s per core, f32 has 261 (Zen 5)"};
[[maybe_unused]] constexpr FormatEntry kBfmmla = {"bf16", "matrix products (BFMMLA)",
                                                  "32 products per instruction, f32 has 8; not measured"};
[[maybe_unused]] constexpr FormatEntry kF32 = {"f32", "f32", ""}, kF16 = {"f16", "f32", ""},
                                       kBf16 = {"bf16", "f32", "no bf16 product instructions"};

}  // namespace

// A processor takes the first entry that it can run (best_target). `amx` needs no more than `amx_f32`, so it
// only runs if HEED_ISA or set_target names it.
const std::vector<TargetEntry>& target_entries() {
  static const std::vector<TargetEntry> entries = {
#if defined(HEED_UNIT_AMX)
    {"amx_f32",
     "matrix tiles (AMX) for bf16, and in parts of bf16 for f32 (three) and f16 (two)",
     {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "amx_tile",
      "amx_bf16"},
     {amx_f32_kernels, amx_f16_kernels, amx_kernels, avx512_kernels},
     {kPartsOfF32, kTilesOfBf16, kPartsOfF16}},
    {"amx",
     "matrix tiles (AMX) for bf16, vectors of 16 floats for the rest",
     {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "amx_tile",
      "amx_bf16"},
     {amx_kernels, avx512_kernels},
     {kF32, kTilesOfBf16, kF16}},
#endif
#if defined(HEED_UNIT_AVX512BF16)
    {"avx512bf16",
     "vectors of 16 floats, dot products of bf16 pairs",
     {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"},
     {avx512bf16_kernels, avx512bf16_tiles_kernels, avx512_kernels},
     {kF32, kPairsOfBf16, kF16},
     "GenuineIntel",
     "dot products of pairs have half the rate of f32 multiply-adds (117 and 234 GFLOP/s on Granite Rapids)"},
#endif
#if defined(HEED_UNIT_AVX512)
    {"avx512",
     "vectors of 16 floats",
     {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
     {avx512_kernels},
     {kF32, kBf16, kF16}},
#endif
#if defined(HEED_UNIT_AVX2)
    {"avx2", "vectors of 8 floats", {"avx2", "fma", "f16c"}, {avx2_kernels}, {kF32, kBf16, kF16}},
#endif
#if defined(HEED_UNIT_NEONBF16)
    {"neonbf16",
     "vectors of 4 floats, matrix products of bf16 (BFMMLA)",
     {"neon", "bf16"},
     {neonbf16_kernels, neon_kernels},
     {kF32, kBfmmla, kF16}},
#endif
#if defined(HEED_UNIT_NEON)
    {"neon", "vectors of 4 floats", {"neon"}, {neon_kernels}, {kF32, kBf16, kF16}},
#endif
#if defined(HEED_UNIT_PLAIN)  // HEED_KERNELS=native and an amalgamated library with other kernels are without
    {"plain", "plain C++, four floats at a time; runs anywhere", {}, {plain_kernels}, {kF32, kBf16, kF16}},
#endif
#if defined(HEED_UNIT_AMX_EMULATED)
    {"amx_emulated",
     "the target amx in plain C++, bit for bit and very slow: for tests",
     {},
     {amx_emulated_kernels, plain_kernels},
     {kF32, kTilesOfBf16, kF16}},
    {"amx_f32_emulated",
     "the target amx_f32 in plain C++, bit for bit and very slow: for tests",
     {},
     {amx_f32_emulated_kernels, amx_f16_emulated_kernels, amx_emulated_kernels, plain_kernels},
     {kPartsOfF32, kTilesOfBf16, kPartsOfF16}},
#endif
  };
  return entries;
}

const TargetEntry& best_target(const std::function<bool(std::string_view)>& has, std::string_view vendor,
                               std::span<const TargetEntry> entries) {
  std::string names;
  for (const TargetEntry& target : entries) {
    if (can_run(target, has) && (target.passed_over_on.empty() || target.passed_over_on != vendor))
      return target;
    names += (names.empty() ? "" : ", ") + std::string(target.name);
  }
  throw Error(ErrorCode::invalid_argument, "this build of heed has kernels for " + names +
                                               " alone, which this processor cannot run; -DHEED_KERNELS=all "
                                               "builds those for every processor");
}

// Measured from memory with 8,192 and more keys of D = 128 (docs/kernel.md). On Granite Rapids, prefetching
// to the first-level cache costs a tenth to a fifth of the speed; on Zen 4, a fifth to a third. On Zen 3 and
// 5 it is best.
ReadAhead read_ahead(std::string_view vendor) {
  constexpr int kZen3And4 = 25;
  constexpr std::int64_t kAnyRows = INT64_MAX;
  if (vendor == "GenuineIntel")
    return {.bytes = 6 << 10, .bytes16 = 6 << 10, .rows = 12, .to_first_cache = false, .by_lines = true};
  if (vendor == "AuthenticAMD" && processor_family() == kZen3And4 && processor_has("avx512f"))
    return {
        .bytes = 8 << 10, .bytes16 = 6 << 10, .rows = kAnyRows, .to_first_cache = false, .by_phases = true};
  return {.bytes = 6 << 10, .bytes16 = 12 << 10, .rows = kAnyRows, .to_first_cache = true};
}

TargetKernels::TargetKernels(const TargetEntry& entry) : name_(entry.name) {
  for (Kernels (*const unit)() : entry.units) units_.push_back(unit());
  if (processor_has("avx512_vnni")) units_.back().products.needs_byte_dots = false;
}

const Kernels& TargetKernels::forward(const Arguments& call) const {
  return *std::find_if(units_.begin(), units_.end(), [&](const Kernels& k) { return k.takes_forward(call); });
}

const Kernels& TargetKernels::weights_pass(const Arguments& call) const {
  return *std::find_if(units_.begin(), units_.end(),
                       [&](const Kernels& k) { return k.takes_weights_pass(call); });
}

const Kernels& TargetKernels::backward(const BackwardArguments& call) const {
  return *std::find_if(units_.begin(), units_.end(),
                       [&](const Kernels& k) { return k.takes_backward(call); });
}

const TargetKernels& kernels() { return *chosen().load(std::memory_order_acquire); }

}  // namespace heed::detail::cpu

namespace heed {
namespace {

std::vector<TargetFormat> formats_of(const detail::cpu::TargetEntry& entry) {
  std::vector<TargetFormat> formats;
  for (const auto& [dtype, format, because] : entry.formats)
    formats.push_back({std::string(dtype), std::string(format), std::string(because)});
  return formats;
}

}  // namespace

std::vector<Target> targets() {
  using namespace detail::cpu;
  std::vector<Target> all;
  const std::string_view chosen_name = kernels().name();
  const bool is_best = chosen_name == best_target(processor_has, processor_vendor()).name;
  const std::string why_chosen =
      is_best ? "the best for this processor" : "HEED_ISA or set_target selected it";
  for (const TargetEntry& entry : target_entries()) {
    const bool is_chosen = entry.name == chosen_name;
    all.push_back({std::string(entry.name),
                   std::string(entry.description),
                   {entry.required.begin(), entry.required.end()},
                   can_run(entry, processor_has),
                   is_chosen,
                   is_chosen ? why_chosen : why_not(entry),
                   formats_of(entry)});
  }
  return all;
}

void set_target(std::string_view name) {
  using namespace detail::cpu;
  const TargetKernels& wanted = kernels_of(named_target(name, "target"));
  chosen().store(&wanted, std::memory_order_release);
}

}  // namespace heed
