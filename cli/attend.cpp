// heed attend: attention on tensors from files.
#include <unistd.h>

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
#include "attend_backend.hpp"
#include "attend_inputs.hpp"
#include "command.hpp"
#include "draw/lettering.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/differential.hpp"
#include "heed/attention/gate.hpp"
#include "heed/attention/plan.hpp"
#include "heed/io/plan.hpp"
#include "heed/io/tensors.hpp"
#include "help.hpp"
#include "io/json_text.hpp"
#include "json.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "progress.hpp"
#include "rank_options.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

std::string name_of(Kernel kernel) { return kernel == Kernel::fused ? "fused" : "reference"; }

AttentionPlan forward_plan(const AttendInputs& in) {
  if (in.cache && in.lambda)
    return plan_differential_attention(in.query, *in.cache, *in.lambda, in.options, in.which);
  if (in.cache) return plan_attention(in.query, *in.cache, in.options, in.which);
  if (in.lambda) return plan_differential_attention(in.query, in.key, in.value, *in.lambda, in.options);
  return plan_attention(in.query, in.key, in.value, in.options);
}

// attention_backward() takes the output and lse of the forward call. A plan needs only their shapes.
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

void print_line(const std::string& name, const std::string& text) {
  constexpr int kIndent = 12;
  std::cout << wrap(left_aligned(name, kIndent) + text, 100, kIndent) << '\n';
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
  print_line("  costs", formatted("%.3g GFLOP", 2 * plan.multiply_adds / 1e9) +
                            ", for the keys that positions let queries see");
  print_line("  returns", size_text(static_cast<double>(plan.result_bytes)));
  print_line("  fallback", plan.falls_back);
}

// Prints the plan of the call, and of its backward pass if a gradient is asked for; computes nothing.
void print_plan(const AttendArguments& arguments, const AttendInputs& inputs) {
  const AttentionPlan forward = forward_plan(inputs);
  if (arguments.json) {
    Json object = detail::parsed_in_order(io::to_json(forward));
    if (inputs.by_output)
      object["backward"] = detail::parsed_in_order(io::to_json(backward_plan(arguments, inputs)));
    std::cout << object.dump() << '\n';
    return;
  }
  print_words(inputs.lambda ? "forward, each of two softmaxes" : "forward", forward);
  if (inputs.by_output) print_words("backward", backward_plan(arguments, inputs));
}

constexpr const char* kAttendDescription =
    "run attention on tensors from files\n"
    "\n"
    "A tensor is FILE.npy, FILE.safetensors:NAME, or - for a .npy file on standard input. Inputs may have "
    "fewer axes, [H, L, D] or [L, D]; the results then lack the same axes. Results in bf16 are written as "
    "f32, because .npy has no bf16. With --grad-output, the gradient of a loss with respect to the output, "
    "the backward pass computes the gradients of query, key, value, bias, sinks and decay. Inputs are never "
    "overwritten, and when anything fails, nothing is written.";

constexpr const char* kAttendExamples =
    "Examples:\n"
    "  heed attend --query q.npy --key k.npy --value v.npy --causal --out o.npy\n"
    "  heed attend --query x.safetensors:q --key x.safetensors:k \\\n"
    "      --value x.safetensors:v --dtype bf16 --lse lse.npy \\\n"
    "      --top-k 5 --top-k-out keys.npy,weights.npy --json\n"
    "  heed attend --query q.npy --key k.npy --value v.npy --causal \\\n"
    "      --grad-output do.npy --grad-query dq.npy --grad-key dk.npy\n"
    "  heed attend --query q.npy --key k.npy --value v.npy --differential 0.8 \\\n"
    "      --out o.npy --weights w.npy\n"
    "  heed attend --query q.npy --cache layer0.safetensors --out o.npy --top-k 5 \\\n"
    "      --top-k-out keys.npy,weights.npy\n"
    "  mpirun -n 4 heed attend --query q.npy --key k.npy --value v.npy --causal \\\n"
    "      --out o.npy --scheme ring\n";

constexpr double kBytesWorthSaying = 64e6;     // writing files of this size takes a while
constexpr double kBytesToSayAnywhere = 100e6;  // a script's log should tell why it waits

struct Run {
  AttentionResult result;
  double seconds = 0;  // median of all repetitions
  std::optional<AttentionGradients> gradients;
  double backward_seconds = 0;
  Tensor grad_lambda, grad_gate;
  std::vector<std::pair<std::string, Tensor>> grids;
};

template <class Work>
double seconds_of(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The median time of `repeat` runs. The first run allocates the tensors; later runs write to them again.
template <class First, class Again>
double median_seconds(std::int64_t repeat, First first, Again again) {
  std::vector<double> seconds = {seconds_of(first)};
  for (std::int64_t i = 1; i < repeat; ++i) seconds.push_back(seconds_of(again));
  return median(std::move(seconds));
}

// Computes in this process.
class Here : public AttendBackend {
 public:
  void check(const CLI::App& app, const AttendArguments& /*arguments*/) override {
    refuse_rank_options_alone(app);
  }
  AttendInputs read(const AttendArguments& arguments) override { return read_attend_inputs(arguments); }
  double memory() override { return memory_of_machine(); }
  AttentionResult forward(const AttendInputs& inputs) override {
    if (inputs.cache) return attention(inputs.query, *inputs.cache, inputs.options, inputs.which);
    return attention(inputs.query, inputs.key, inputs.value, inputs.options);
  }
  void forward_into(const AttendInputs& inputs, const AttentionOutputs& outputs) override {
    if (inputs.cache)
      attention_into(inputs.query, *inputs.cache, inputs.options, outputs, inputs.which);
    else
      attention_into(inputs.query, inputs.key, inputs.value, inputs.options, outputs);
  }
  AttentionGradients backward(const AttentionBackwardInputs& from, const AttentionOptions& options,
                              const GradientRequest& request) override {
    return attention_backward(from, options, request);
  }
  void backward_into(const AttentionBackwardInputs& from, const AttentionOptions& options,
                     const AttentionGradientViews& gradients) override {
    attention_backward_into(from, options, gradients);
  }
  void write(const std::vector<ResultFile>& files) override {
    std::vector<std::pair<std::string, TensorView>> views;
    for (const ResultFile& file : files) views.emplace_back(file.path, file.view);
    ProgressBar bar;
    io::write_npy_files(views, [&](double share) { bar.show("writing", share); });
  }
  void describe(nlohmann::ordered_json& /*object*/) override {}
};

Run run_attention(AttendBackend& backend, const AttendInputs& inputs, std::int64_t repeat) {
  Run run;
  AttentionOutputs outputs;
  run.seconds = median_seconds(
      repeat,
      [&] {
        run.result = backend.forward(inputs);
        for (std::size_t i = 0; i < kResultCount; ++i) result(outputs, i) = result<Tensor>(run.result, i);
      },
      [&] { backend.forward_into(inputs, outputs); });
  return run;
}

void run_backward(AttendBackend& backend, const AttendArguments& arguments, const AttendInputs& inputs,
                  Run& run) {
  const AttentionBackwardInputs from{inputs.query,   inputs.key,        inputs.value,  run.result.output,
                                     run.result.lse, *inputs.by_output, inputs.by_lse, inputs.by_weights};
  GradientRequest request;
  bool any = false;  // --grad-gate alone needs no backward pass
  for (const GradientFile& file : gradient_files())
    any |= request.*file.request = !(arguments.*file.path).empty();
  if (!any) return;
  AttentionGradientViews views;
  run.backward_seconds = median_seconds(
      arguments.repeat,
      [&] {
        run.gradients = backend.backward(from, inputs.options, request);
        for (const GradientFile& file : gradient_files()) views.*file.view = *run.gradients.*file.tensor;
      },
      [&] { backend.backward_into(from, inputs.options, views); });
}

Run run_differential(const AttendArguments& arguments, const AttendInputs& inputs) {
  Run run;
  DifferentialResult result;
  const auto attend = [&] {
    result = inputs.cache ? differential_attention(inputs.query, *inputs.cache, *inputs.lambda,
                                                   inputs.options, inputs.which)
                          : differential_attention(inputs.query, inputs.key, inputs.value, *inputs.lambda,
                                                   inputs.options);
  };
  run.seconds = median_seconds(arguments.repeat, attend, attend);
  run.result = joined(result);
  if (!inputs.by_output) return run;
  DifferentialGradients by;
  const auto differentiate = [&] {
    by = differential_attention_backward(inputs.query, inputs.key, inputs.value, *inputs.lambda, result,
                                         *inputs.by_output, inputs.options);
  };
  run.backward_seconds = median_seconds(arguments.repeat, differentiate, differentiate);
  AttentionGradients& gradients = run.gradients.emplace();
  gradients.query = std::move(by.query);
  gradients.key = std::move(by.key);
  gradients.value = std::move(by.value);
  gradients.kernel = run.result.kernel;
  gradients.isa = run.result.isa;
  gradients.threads = run.result.threads;
  run.grad_lambda = std::move(by.lambda);
  return run;
}

// The passes see the output before its gate, and the gradient by that output.
void run_passes(AttendBackend& backend, const AttendArguments& arguments, AttendInputs& inputs, Run& run) {
  const int threads = inputs.options.threads;
  const std::optional<TensorView> by_gated = inputs.by_output;
  if (inputs.gate && by_gated)
    inputs.by_output = inputs.tensors.emplace_back(gated(*by_gated, *inputs.gate, threads));
  run =
      inputs.lambda ? run_differential(arguments, inputs) : run_attention(backend, inputs, arguments.repeat);
  if (inputs.by_output && !inputs.lambda) run_backward(backend, arguments, inputs, run);
  if (!inputs.gate) return;
  if (by_gated) run.grad_gate = gate_gradient(*inputs.gate, run.result.output, *by_gated, threads);
  run.result.output = gated(run.result.output, *inputs.gate, threads);
}

Need needs_of(const AttendArguments& arguments) {
  Need need = Need::none;
  for (const auto& [entry, path] : kResults<std::string>)
    if (!(arguments.results.*path).empty()) need |= entry.need;
  if (!arguments.by_output.empty()) need |= Need::lse;
  return need;
}

std::vector<NamedFile> output_files(const AttendArguments& arguments) {
  std::vector<NamedFile> files = form_files(arguments);
  for (const auto& [entry, path] : kResults<std::string>)
    files.push_back({result_option(entry), arguments.results.*path});
  for (const GradientFile& file : gradient_files()) files.push_back({file.option, arguments.*file.path});
  return files;
}

Along along_of(ResultShape shape) {
  switch (shape) {
    case ResultShape::output:
      return kAlongQueries;
    case ResultShape::pair:
    case ResultShape::top_k:
      return {.sequence = Along::queries};
    case ResultShape::row:
      return {.sequence = Along::queries, .axis = -1};
    case ResultShape::key:
    case ResultShape::key_last:
      return {.sequence = Along::keys, .axis = -1};
    default:
      return {};
  }
}

std::vector<ResultFile> result_files(const AttendArguments& arguments, const Run& run) {
  std::vector<ResultFile> files;
  const auto add = [&](const std::string& path, const TensorView& view, const Along& along) {
    const bool swapped = arguments.length_first && along.by_layout;
    files.push_back({path, swapped ? swap_layout(view) : view, along});
  };
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (const std::string& path = result(arguments.results, i); !path.empty())
      add(path, result<Tensor>(run.result, i), along_of(result_entry(i).shape));
  for (const GradientFile& file : gradient_files())
    if (!(arguments.*file.path).empty()) add(arguments.*file.path, *run.gradients.*file.tensor, file.along);
  if (const std::string& path = arguments.forms.grad_lambda; !path.empty()) add(path, run.grad_lambda, {});
  if (const std::string& path = arguments.forms.grad_gate; !path.empty())
    add(path, run.grad_gate, kAlongQueries);
  for (const auto& [path, tensor] : run.grids) add(path, tensor, {});
  return files;
}

// The number of scores over all heads.
double cells_of(const AttendInputs& inputs) {
  const Dims &query = inputs.query_shape, &key = inputs.key_shape;
  double rows = 1;
  for (int axis = 0; axis + 1 < query.size(); ++axis) rows *= static_cast<double>(query[axis]);
  return rows * static_cast<double>(key[key.size() - 2]);
}

// Bytes of the matrices that --weights and --scores ask for.
double matrix_bytes(const AttendInputs& inputs) {
  const int matrices = has(inputs.options.need, Need::weights) + has(inputs.options.need, Need::scores);
  if (matrices == 0 || inputs.query_shape.size() < 2 || inputs.key_shape.size() < 2) return 0;
  return cells_of(inputs) * matrices * (inputs.query.dtype() == DType::f64 ? 8 : 4);
}

// Refuses a matrix that does not fit into memory, and suggests cheaper results.
void check_memory(double bytes, double memory) {
  if (bytes > memory)
    refuse_usage("--weights and --scores need ", size_text(bytes), ", more than this machine's memory (",
                 size_text(memory),
                 "); --map 1024x1024 (exact sums), --received, --entropy or --top-k need less");
}

// Tells the size of the files before work begins.
void say_size(const AttendArguments& arguments, double bytes) {
  if (bytes < (isatty(STDERR_FILENO) == 1 ? kBytesWorthSaying : kBytesToSayAnywhere)) return;
  const std::string weights = arguments.results.weights.empty() ? "" : "--weights";
  const std::string scores = arguments.results.scores.empty() ? "" : "--scores";
  std::cerr << "heed: " << weights << (weights.empty() || scores.empty() ? "" : " and ") << scores
            << (weights.empty() || scores.empty() ? " writes " : " write ") << size_text(bytes) << std::endl;
}

// One multiplication and one addition for each of the D products of a score and each of the Dv products of a
// weighted value. Causal attention counts half of the scores; other masks are ignored.
double effective_flops(const AttendInputs& inputs) {
  const double per_cell = 2.0 * static_cast<double>(inputs.query_shape.back() + inputs.value_shape.back());
  return cells_of(inputs) * per_cell * (inputs.options.causal && !inputs.cache ? 0.5 : 1.0);
}

// The backward pass has five matrix products of this size, the forward pass two.
constexpr double kBackwardFlops = 2.5;

void print_json(AttendBackend& backend, const AttendInputs& inputs, const Run& run) {
  const auto shape = [](const Dims& dims) { return std::vector<std::int64_t>(dims.begin(), dims.end()); };
  nlohmann::ordered_json object = {{"query", shape(inputs.query_shape)},
                                   {"key", shape(inputs.key_shape)},
                                   {"value", shape(inputs.value_shape)},
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
  backend.describe(object);
  std::cout << object.dump() << '\n';
}

void attend(const CLI::App& app, AttendBackend& backend, AttendArguments& arguments) {
  complete_attend_arguments(app, arguments);
  backend.check(app, arguments);
  check_outputs(attend_input_files(arguments), output_files(arguments));
  if (arguments.json || arguments.plan) require_standard_output();
  AttendInputs inputs = backend.read(arguments);
  inputs.options.need = needs_of(arguments);
  if (arguments.plan) return print_plan(arguments, inputs);
  const double bytes = matrix_bytes(inputs);
  check_memory(bytes, backend.memory());
  say_size(arguments, bytes);
  Run run;
  run_passes(backend, arguments, inputs, run);
  run.grids = grid_results(arguments, inputs);
  backend.write(result_files(arguments, run));
  if (arguments.json) print_json(backend, inputs, run);
}

}  // namespace

Command add_attend_with(CLI::App& heed, std::shared_ptr<AttendBackend> backend) {
  CLI::App* app = add_command(heed, "attend", kAttendDescription);
  const auto arguments = std::make_shared<AttendArguments>();
  add_attend_options(*app, *arguments);
  finish_help(
      *app, {"--query TENSOR --key TENSOR --value TENSOR [options]", "--query TENSOR --cache FILE [options]"},
      kAttendExamples);
  return {app, [app, backend, arguments] { attend(*app, *backend, *arguments); }};
}

Command add_attend(CLI::App& heed) { return add_attend_with(heed, std::make_shared<Here>()); }

}  // namespace heed::cli
