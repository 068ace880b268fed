// Shared by the tests of heed explain: ways to run it, and its JSON output, parsed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "io_support.hpp"

namespace heed::test {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

inline constexpr const char* kFox = "the quick brown fox jumps over the lazy dog";

inline CommandResult explain(const Words& arguments, const CommandInput& input = {}) {
  Words all = {"explain"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_heed(all, input);
}

inline std::string output_of(const Words& arguments, const CommandInput& input = {}) {
  const CommandResult result = explain(arguments, input);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  return result.output;
}

inline Json json_of(Words arguments, const CommandInput& input = {}) {
  arguments.emplace_back("--json");
  return Json::parse(output_of(arguments, input));
}

inline Json step_of(const Json& object, const std::string& name) {
  for (const Json& step : object.at("steps"))
    if (step.at("name") == name) return step;
  ADD_FAILURE() << "no step " << name;
  return {};
}

/// Converts nested lists to a tensor; null becomes -inf.
inline Tensor tensor_of(const Json& step) {
  std::vector<float> flat;
  const std::function<void(const Json&)> add = [&](const Json& values) {
    if (values.is_array())
      for (const Json& value : values) add(value);
    else
      flat.push_back(values.is_null() ? -std::numeric_limits<float>::infinity() : values.get<float>());
  };
  add(step.at("values"));
  Dims shape;
  for (const Json& size : step.at("shape")) shape.push_back(size.get<std::int64_t>());
  return Tensor::from(std::span<const float>(flat), shape);
}

class Explain : public testing::Test {
 protected:
  // Runs with --save and returns the contents of the file.
  heed::io::TensorFile saved(Words arguments) const {
    arguments.insert(arguments.end(), {"--save", path});
    (void)output_of(arguments);
    return heed::io::read_safetensors(path);
  }
  static const Tensor& named(const heed::io::TensorFile& file, const std::string& name) {
    for (const auto& [found, tensor] : file.tensors)
      if (found == name) return tensor;
    throw std::runtime_error("no tensor " + name);
  }
  static void expect_refusal(int exit_code, const Words& arguments, const std::string& message,
                             const CommandInput& input = {}) {
    const CommandResult result = explain(arguments, input);
    EXPECT_EQ(result.exit_code, exit_code) << message;
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
  }
  TemporaryFolder folder;
  const std::string path = folder / "steps.safetensors";
};

/// Tolerance for two f32 computations that sum in different orders.
inline constexpr double kTolerance = 2e-6;

}  // namespace heed::test
