// heed attend: attention on tensors from files.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attend_arguments.hpp"
#include "attend_inputs.hpp"
#include "command.hpp"
#include "heed/backward.hpp"
#include "heed/io.hpp"
#include "help.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "standard_streams.hpp"

namespace heed::cli {
namespace {

constexpr const char* kAttendDescription =
    "run attention on tensors from files\n"
    "\n"
    "A tensor is FILE.npy, FILE.safetensors:NAME, or - for a .npy file on standard input. Inputs of rank 3, "
    "[H, L, D], or 2, [L, D], give results without the axes that they lack. What .npy has no name for (bf16) "
    "is written as f32. With --grad-out, the gradient of a loss by the output, the backward pass gives those "
    "by query, key, value, bias and sinks. Inputs are never overwritten, and when anything fails, nothing is "
    "written.";

constexpr const char* kAttendExamples =
    "Examples:\n"
    "  heed attend --query q.npy --key k.npy --value v.npy --causal --out o.npy\n"
    "  heed attend --query x.safetensors:q --key x.safetensors:k \\\n"
    "      --value x.safetensors:v --dtype bf16 --lse lse.npy \\\n"
    "      --top-k 5 --top-k-out keys.npy,weights.npy --json\n"
    "  heed attend --query q.npy --key k.npy --value v.npy --causal \\\n"
    "      --grad-out do.npy --grad-query dq.npy --grad-key dk.npy\n";

struct Run {
  AttentionResult result;
  double seconds = 0;  // the median of all repetitions
  std::optional<AttentionGradients> gradients;
  double backward_seconds = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

template <class Work>
double seconds_of(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The median of `repeat` computations: the first makes the tensors that the others write to again.
template <class First, class Again>
double median_seconds(std::int64_t repeat, First first, Again again) {
  std::vector<double> seconds = {seconds_of(first)};
  for (std::int64_t i = 1; i < repeat; ++i) seconds.push_back(seconds_of(again));
  return median(std::move(seconds));
}

Run run_attention(const AttendInputs& inputs, std::int64_t repeat) {
  Run run;
  AttentionOutputs outputs;
  run.seconds = median_seconds(
      repeat,
      [&] {
        run.result = attention(inputs.query, inputs.key, inputs.value, inputs.options);
        for (std::size_t i = 0; i < kResultCount; ++i) result(outputs, i) = result<Tensor>(run.result, i);
      },
      [&] { attention_into(inputs.query, inputs.key, inputs.value, inputs.options, outputs); });
  return run;
}

void run_backward(const AttendArguments& arguments, const AttendInputs& inputs, Run& run) {
  const AttentionBackwardInputs from{inputs.query,   inputs.key,        inputs.value,  run.result.output,
                                     run.result.lse, *inputs.by_output, inputs.by_lse, inputs.by_weights};
  GradientRequest request;
  for (const GradientFile& file : gradient_files()) request.*file.request = !(arguments.*file.path).empty();
  AttentionGradientViews views;
  run.backward_seconds = median_seconds(
      arguments.repeat,
      [&] {
        run.gradients = attention_backward(from, inputs.options, request);
        for (const GradientFile& file : gradient_files()) views.*file.view = *run.gradients.*file.tensor;
      },
      [&] { attention_backward_into(from, inputs.options, views); });
}

Need needs_of(const AttendArguments& arguments) {
  Need need = Need::none;
  for (const auto& [entry, path] : kResults<std::string>)
    if (!(arguments.results.*path).empty()) need |= entry.need;
  if (!arguments.by_output.empty()) need |= Need::lse;
  return need;
}

std::vector<NamedFile> output_files(const AttendArguments& arguments) {
  std::vector<NamedFile> files;
  for (const auto& [entry, path] : kResults<std::string>)
    if (!(arguments.results.*path).empty()) files.push_back({result_option(entry), arguments.results.*path});
  for (const GradientFile& file : gradient_files()) {
    if (!(arguments.*file.path).empty()) files.push_back({file.option, arguments.*file.path});
  }
  return files;
}

void write_results(const AttendArguments& arguments, const Run& run) {
  std::vector<std::pair<std::string, TensorView>> files;
  const auto add = [&](const std::string& path, const TensorView& view, bool has_layout) {
    files.emplace_back(path, arguments.length_first && has_layout ? swap_layout(view) : view);
  };
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (const std::string& path = result(arguments.results, i); !path.empty())
      add(path, result<Tensor>(run.result, i), result_entry(i).shape == ResultShape::output);
  for (const GradientFile& file : gradient_files())
    if (!(arguments.*file.path).empty())
      add(arguments.*file.path, *run.gradients.*file.tensor, file.has_layout);
  io::write_npy_files(files);
}

// Scores of all heads: a number for each query and key.
double cells_of(const AttendInputs& inputs) {
  const TensorView& query = inputs.query;
  double rows = static_cast<double>(query.size(-2));
  for (int axis = 0; axis < query.rank() - 2; ++axis) rows *= static_cast<double>(query.size(axis));
  return rows * static_cast<double>(inputs.key.size(-2));
}

// A matrix of all weights that cannot be held is refused at once, with what answers without it.
void check_memory(const AttendInputs& inputs) {
  const int matrices = has(inputs.options.need, Need::weights) + has(inputs.options.need, Need::scores);
  if (matrices == 0 || inputs.query.rank() < 2 || inputs.key.rank() < 2) return;
  const double bytes = cells_of(inputs) * matrices * (inputs.query.dtype() == DType::f64 ? 8 : 4);
  if (bytes > memory_of_machine())
    throw UsageError("--weights and --scores ask for " + size_text(bytes) +
                     ", more than this machine's memory (" + size_text(memory_of_machine()) +
                     "); --map 1024x1024 (exact sums), --received, --entropy or --top-k answer more cheaply");
}

// A multiplication and an addition for each of the D products of a score and the Dv of a weighted value;
// causal attention needs half of the scores. Other masks are not subtracted.
double effective_flops(const AttendInputs& inputs) {
  const double per_cell = 2.0 * static_cast<double>(inputs.query.size(-1) + inputs.value.size(-1));
  return cells_of(inputs) * per_cell * (inputs.options.causal ? 0.5 : 1.0);
}

// Five matrix products of the forward pass's size instead of two.
constexpr double kBackwardFlops = 2.5;

std::string name_of(Kernel kernel) { return kernel == Kernel::fused ? "fused" : "reference"; }

void print_json(const AttendInputs& inputs, const Run& run) {
  const auto shape = [](const TensorView& view) {
    return std::vector<std::int64_t>(view.shape().begin(), view.shape().end());
  };
  nlohmann::ordered_json object = {{"query", shape(inputs.query)},
                                   {"key", shape(inputs.key)},
                                   {"value", shape(inputs.value)},
                                   {"dtype", heed::name_of(inputs.query.dtype())}};
  const auto add_pass = [](nlohmann::ordered_json& to, const auto& result, double seconds, double flops) {
    to["kernel"] = name_of(result.kernel);
    to["isa"] = result.isa;
    to["threads"] = result.threads;
    to["recomputed_rows"] = result.recomputed_rows;
    to["seconds"] = seconds;
    to["gflops"] = flops / seconds / 1e9;
  };
  const double flops = effective_flops(inputs);
  add_pass(object, run.result, run.seconds, flops);
  if (run.gradients)
    add_pass(object["backward"], *run.gradients, run.backward_seconds, kBackwardFlops * flops);
  std::cout << object.dump() << '\n';
}

void attend(const CLI::App& app, AttendArguments& arguments) {
  complete_attend_arguments(app, arguments);
  check_outputs(attend_input_files(arguments), output_files(arguments));
  if (arguments.json) require_standard_output();
  AttendInputs inputs = read_attend_inputs(arguments);
  inputs.options.need = needs_of(arguments);
  check_memory(inputs);
  Run run = run_attention(inputs, arguments.repeat);
  if (inputs.by_output) run_backward(arguments, inputs, run);
  write_results(arguments, run);
  if (arguments.json) print_json(inputs, run);
}

}  // namespace

Command add_attend(CLI::App& heed) {
  CLI::App* app = add_command(heed, "attend", kAttendDescription);
  const auto arguments = std::make_shared<AttendArguments>();
  add_attend_options(*app, *arguments);
  finish_help(*app, {"--query TENSOR --key TENSOR --value TENSOR [options]"}, kAttendExamples);
  return {app, [app, arguments] { attend(*app, *arguments); }};
}

}  // namespace heed::cli
