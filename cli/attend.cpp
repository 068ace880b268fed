// heed attend: attention on tensors from files.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attend_arguments.hpp"
#include "attend_inputs.hpp"
#include "command.hpp"
#include "heed/io.hpp"
#include "help.hpp"
#include "output_files.hpp"
#include "standard_streams.hpp"

namespace heed::cli {
namespace {

constexpr const char* kDescription =
    "run attention on tensors from files\n"
    "\n"
    "A tensor is FILE.npy, FILE.safetensors:NAME, or - for a .npy file on standard input. Inputs of rank 3, "
    "[H, L, D], or 2, [L, D], give results without the axes that they lack. What .npy has no name for (bf16) "
    "is "
    "written as f32. Inputs are never overwritten, and when anything fails, nothing is written.";

constexpr const char* kExamples =
    "Examples:\n"
    "  heed attend --query q.npy --key k.npy --value v.npy --causal --out o.npy\n"
    "  heed attend --query x.safetensors:q --key x.safetensors:k \\\n"
    "      --value x.safetensors:v --dtype bf16 --lse lse.npy \\\n"
    "      --top-k 5 --top-k-out keys.npy,weights.npy --json\n";

struct Run {
  AttentionResult result;
  double seconds = 0;  // the median of all repetitions
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

// The first computation makes the tensors that the others write to again.
Run run_attention(const AttendInputs& inputs, std::int64_t repeat) {
  Run run;
  std::vector<double> seconds;
  seconds.push_back(
      seconds_of([&] { run.result = attention(inputs.query, inputs.key, inputs.value, inputs.options); }));
  AttentionOutputs outputs;
  for (const ResultFile& file : result_files()) outputs.*file.view = run.result.*file.tensor;
  for (std::int64_t i = 1; i < repeat; ++i) {
    seconds.push_back(
        seconds_of([&] { attention_into(inputs.query, inputs.key, inputs.value, inputs.options, outputs); }));
  }
  run.seconds = median(std::move(seconds));
  return run;
}

Need needs_of(const AttendArguments& arguments) {
  Need need = Need::none;
  for (const ResultFile& file : result_files()) {
    if (!(arguments.*file.path).empty()) need |= file.need;
  }
  return need;
}

std::vector<NamedFile> output_files(const AttendArguments& arguments) {
  std::vector<NamedFile> files;
  for (const ResultFile& file : result_files()) {
    if (!(arguments.*file.path).empty()) files.push_back({file.option, arguments.*file.path});
  }
  return files;
}

void write_results(const AttendArguments& arguments, const AttentionResult& result) {
  std::vector<std::pair<std::string, TensorView>> files;
  for (const ResultFile& file : result_files()) {
    if ((arguments.*file.path).empty()) continue;
    const TensorView view = result.*file.tensor;
    const bool swap = arguments.length_first && file.tensor == &AttentionResult::output;
    files.emplace_back(arguments.*file.path, swap ? swap_layout(view) : view);
  }
  io::write_npy_files(files);
}

// A multiplication and an addition for each of the D products of a score and the Dv of a weighted value;
// causal attention needs half of the scores. Other masks are not subtracted.
double effective_flops(const AttendInputs& inputs) {
  const TensorView& query = inputs.query;
  double rows = static_cast<double>(query.size(-2));
  for (int axis = 0; axis < query.rank() - 2; ++axis) rows *= static_cast<double>(query.size(axis));
  const double cells = rows * static_cast<double>(inputs.key.size(-2));
  const double per_cell = 2.0 * static_cast<double>(query.size(-1) + inputs.value.size(-1));
  return cells * per_cell * (inputs.options.causal ? 0.5 : 1.0);
}

std::string name_of(Kernel kernel) { return kernel == Kernel::fused ? "fused" : "reference"; }

void print_json(const AttendInputs& inputs, const Run& run) {
  const auto shape = [](const TensorView& view) {
    return std::vector<std::int64_t>(view.shape().begin(), view.shape().end());
  };
  const nlohmann::ordered_json object = {{"query", shape(inputs.query)},
                                         {"key", shape(inputs.key)},
                                         {"value", shape(inputs.value)},
                                         {"dtype", heed::name_of(inputs.query.dtype())},
                                         {"kernel", name_of(run.result.kernel)},
                                         {"isa", run.result.isa},
                                         {"threads", run.result.threads},
                                         {"seconds", run.seconds},
                                         {"gflops", effective_flops(inputs) / run.seconds / 1e9}};
  std::cout << object.dump() << '\n';
}

void attend(const CLI::App& app, AttendArguments& arguments) {
  complete_attend_arguments(app, arguments);
  check_outputs(attend_input_files(arguments), output_files(arguments));
  if (arguments.json) require_standard_output();
  AttendInputs inputs = read_attend_inputs(arguments);
  inputs.options.need = needs_of(arguments);
  const Run run = run_attention(inputs, arguments.repeat);
  write_results(arguments, run.result);
  if (arguments.json) print_json(inputs, run);
}

}  // namespace

Command add_attend(CLI::App& heed) {
  CLI::App* app = heed.add_subcommand("attend", kDescription);
  const auto arguments = std::make_shared<AttendArguments>();
  add_attend_options(*app, *arguments);
  finish_help(*app, kExamples);
  return {app, [app, arguments] { attend(*app, *arguments); }};
}

}  // namespace heed::cli
