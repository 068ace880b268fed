#include "attend_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "heed/attention/plan.hpp"
#include "json.hpp"
#include "machine.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// The gradients need results of the forward call. Here only their shapes count.
AttentionPlan backward_plan(const AttendArguments& arguments, const AttendInputs& inputs) {
  const Dims& query = inputs.query.shape();
  Dims output = query, rows;
  output[output.size() - 1] = inputs.value.size(-1);
  for (int axis = 0; axis + 1 < query.size(); ++axis) rows.push_back(query[axis]);
  const DType summary = inputs.query.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor out = Tensor::uninitialized(output, inputs.query.dtype());
  const Tensor lse = Tensor::uninitialized(rows, summary);
  GradientRequest request;
  for (const GradientFile& file : gradient_files()) request.*file.request = !(arguments.*file.path).empty();
  return plan_attention_backward(
      {inputs.query, inputs.key, inputs.value, out, lse, *inputs.by_output, inputs.by_lse, inputs.by_weights},
      inputs.options, request);
}

Json object_of(const AttentionPlan& plan) {
  Json passes = Json::array();
  for (const PlannedPass& pass : plan.passes)
    passes.push_back({{"name", pass.name},
                      {"unit", pass.unit},
                      {"path", pass.path},
                      {"schedule", pass.schedule},
                      {"tasks", pass.tasks},
                      {"rows", pass.rows},
                      {"keys", pass.keys},
                      {"threads", pass.threads},
                      {"bytes", pass.bytes},
                      {"because", pass.because}});
  return {{"kernel", name_of(plan.kernel)},  {"isa", plan.isa},
          {"because", plan.because},         {"passes", passes},
          {"flops", 2 * plan.multiply_adds}, {"result_bytes", plan.result_bytes},
          {"falls_back", plan.falls_back}};
}

void print_line(const std::string& name, const std::string& text) {
  constexpr std::size_t kIndent = 12;
  const std::string padded = name + std::string(kIndent - std::min(kIndent, name.size()), ' ');
  std::cout << wrap(padded + text, 100, static_cast<int>(kIndent)) << '\n';
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string flops_text(double flops) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.3g GFLOP", flops / 1e9);
  return text.data();
}

void print_words(const std::string& title, const AttentionPlan& plan) {
  std::cout << title << '\n';
  print_line("  kernel", name_of(plan.kernel) + ", " + std::string(plan.isa) + ". " + plan.because);
  for (const PlannedPass& pass : plan.passes) {
    print_line("  pass", pass.name + ": unit " + pass.unit + ", path " + pass.path + ", " +
                             counted(pass.tasks, "task") + " of up to " + counted(pass.rows, "row") + " by " +
                             counted(pass.keys, "key") + ", " + counted(pass.threads, "thread") + " (" +
                             pass.schedule + "), " + size_text(static_cast<double>(pass.bytes)));
    print_line("", pass.because);
  }
  print_line("  costs", flops_text(2 * plan.multiply_adds) + ", for the keys that positions let queries see");
  print_line("  returns", size_text(static_cast<double>(plan.result_bytes)));
  print_line("  fallback", plan.falls_back);
}

}  // namespace

std::string name_of(Kernel kernel) { return kernel == Kernel::fused ? "fused" : "reference"; }

void print_plan(const AttendArguments& arguments, const AttendInputs& inputs) {
  const AttentionPlan forward = plan_attention(inputs.query, inputs.key, inputs.value, inputs.options);
  if (arguments.json) {
    Json object = object_of(forward);
    if (inputs.by_output) object["backward"] = object_of(backward_plan(arguments, inputs));
    std::cout << object.dump() << '\n';
    return;
  }
  print_words("forward", forward);
  if (inputs.by_output) print_words("backward", backward_plan(arguments, inputs));
}

}  // namespace heed::cli
