// The target that calls use, depending on the processor and on the user.
#include "heed/attention/targets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "attention/isa/dispatch.hpp"
#include "heed/attention/attention.hpp"
#include "heed/error.hpp"
#include "processor.hpp"

namespace {

using heed::Target;
using heed::Tensor;

// The processor's features as the operating system reports them: "flags : … avx2 …" or "Features : … asimd
// …". Empty if an emulator shows another processor's list.
std::set<std::string> system_flags() {
#if defined(__aarch64__)
  const std::string key = "Features";
#else
  const std::string key = "flags";
#endif
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      std::istringstream words(line.substr(line.find(':') + 1));
      for (std::string word; words >> word;) flags.insert(word);
      break;
    }
  return flags;
}

std::string target_taken() {
  const Tensor one({1, 1});
  return std::string(heed::attention(one, one, one, {.kernel = heed::Kernel::fused}).isa);
}

TEST(Targets, AreAvailableWhereTheSystemListsAllThatTheyNeed) {
  const std::set<std::string> flags = system_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no features of this processor";
  for (const Target& target : heed::targets()) {
    const bool all = std::all_of(
        target.required.begin(), target.required.end(),
        [&](const std::string& feature) { return flags.contains(feature == "neon" ? "asimd" : feature); });
    const bool needs_tiles = std::count(target.required.begin(), target.required.end(), "amx_tile") > 0;
    EXPECT_EQ(target.available, all && (!needs_tiles || heed::test::system_gives_tiles())) << target.name;
  }
}

TEST(Targets, SayWhatEachDtypeIsMultipliedIn) {
  for (const Target& target : heed::targets()) {
    std::set<std::string> dtypes;
    for (const heed::TargetFormat& format : target.formats) {
      dtypes.insert(format.dtype);
      EXPECT_FALSE(format.format.empty()) << target.name;
      // Any format other than plain f32 was chosen by a measurement.
      EXPECT_TRUE(format.format == "f32" || !format.because.empty()) << target.name << ", " << format.dtype;
    }
    EXPECT_EQ(dtypes, (std::set<std::string>{"f32", "bf16", "f16"})) << target.name;
  }
}

// Without an environment variable, calls use the best target of the processor.
TEST(Targets, CallsTakeTheFirstAvailableOne) {
  if (const char* isa = std::getenv("HEED_ISA"); isa != nullptr && *isa != '\0')
    GTEST_SKIP() << "HEED_ISA is set to " << isa;
  const auto all = heed::targets();
  const auto chosen =
      std::find_if(all.begin(), all.end(), [](const Target& target) { return target.chosen; });
  ASSERT_NE(chosen, all.end());
  EXPECT_EQ(target_taken(), chosen->name);
  EXPECT_EQ(chosen->why, "the best for this processor");
  for (auto better = all.begin(); better != chosen; ++better)
    EXPECT_TRUE(!better->available || better->why.find("GFLOP/s") != std::string::npos) << better->name;
}

#if defined(__x86_64__)
TEST(Targets, OnIntelPairsOfBf16AreNoTargetToTake) {
  if (!HEED_ALL_KERNELS) GTEST_SKIP() << "a build of all kernels is needed";
  const auto all = [](std::string_view) { return true; };
  const auto without_tiles = [](std::string_view feature) { return !feature.starts_with("amx"); };
  EXPECT_EQ(heed::detail::cpu::best_target(all, "GenuineIntel").name, "amx_f32");
  EXPECT_EQ(heed::detail::cpu::best_target(without_tiles, "GenuineIntel").name, "avx512");
  EXPECT_EQ(heed::detail::cpu::best_target(without_tiles, "AuthenticAMD").name, "avx512bf16");
}
#endif

// No call uses an emulation unless asked to.
TEST(Targets, AnEmulationIsNeverTakenByItself) {
  EXPECT_EQ(heed::detail::cpu::best_target([](std::string_view) { return false; }, "").name, "plain");
}

// HEED_KERNELS=native leaves out `plain`, which every processor can run.
TEST(Targets, ABuildForAnotherProcessorSaysWhichKernelsItHas) {
  const std::vector<heed::detail::cpu::TargetEntry> built = {{"amx", "", {"avx2", "amx_bf16"}, {}, {}},
                                                             {"avx2", "", {"avx2"}, {}, {}}};
  const auto of = [&](std::string_view processor) {
    const auto has = [&](std::string_view feature) { return feature == processor; };
    return heed::detail::cpu::best_target(has, "", built).name;
  };
  EXPECT_EQ(of("avx2"), "avx2");
  try {
    of("neon");
    FAIL() << "no error";
  } catch (const heed::Error& error) {
    EXPECT_STREQ(error.what(),
                 "this build of heed has kernels for amx, avx2 alone, which this processor cannot run; "
                 "-DHEED_KERNELS=all builds those for every processor");
  }
}

TEST(Targets, SayWhyTheyAreNotTaken) {
  for (const Target& target : heed::targets()) {
    if (target.available) continue;
    EXPECT_TRUE(target.why.starts_with("the processor has no ") ||
                target.why.starts_with("the system refuses "))
        << target.name << ": " << target.why;
  }
}

// AVX2's unit is compiled with F16C, so a processor without it must not run it.
TEST(Targets, AProcessorThatLacksOneFeatureTakesATargetThatDoesNotNeedIt) {
  for (const Target& target : heed::targets())
    for (const std::string& lacking : target.required) {
      const auto has_others = [&](std::string_view feature) { return feature != lacking; };
      const heed::detail::cpu::TargetEntry taken = heed::detail::cpu::best_target(has_others, "");
      EXPECT_EQ(std::count(taken.required.begin(), taken.required.end(), lacking), 0) << taken.name;
    }
#if defined(__x86_64__)
  EXPECT_EQ(
      heed::detail::cpu::best_target([](std::string_view feature) { return feature != "f16c"; }, "").name,
      "plain");
#endif
}

TEST(Targets, AreChosenInCode) {
  const std::string before = target_taken();
  for (const Target& target : heed::targets()) {
    if (!target.available) continue;
    heed::set_target(target.name);
    EXPECT_EQ(target_taken(), target.name);
  }
  heed::set_target(before);
}

TEST(Targets, ThatThisMachineLacksAreRefused) {
  try {
    heed::set_target("abacus");
    FAIL() << "no error";
  } catch (const heed::Error& error) {
    EXPECT_EQ(std::string(error.what()).find("target is 'abacus'; this machine has "), 0u) << error.what();
  }
}

}  // namespace
