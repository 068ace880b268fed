// Forms of attention in `heed attend`: the difference of two softmaxes, gates, and tokens on a grid.
#include <algorithm>
#include <utility>

#include "attend_inputs.hpp"
#include "command.hpp"
#include "heed/inspect/grid.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// Whole numbers of at least 1 between the letters x.
void add_sizes(CLI::App& app, const char* name, std::vector<std::int64_t>& sizes, const std::string& help) {
  const auto store = [&sizes, name](const std::string& text) {
    sizes = whole_numbers(text, 'x');
    if (sizes.empty() || std::ranges::min(sizes) < 1)
      refuse_value(name, text, "a list of sizes, such as 24x32 or 8x24x32,");
  };
  add_text_option(app, name, "SIZES", store, help);
}

}  // namespace

void add_form_options(CLI::App& app, AttendArguments& arguments) {
  FormArguments& forms = arguments.forms;
  begin_group(app, "Differential attention (query heads 2h and 2h + 1 are halves of head h)");
  add_text_option(
      app, "--differential", "LAMBDA",
      [&](const std::string& text) {
        arguments.factor = finite_number(text);
        if (arguments.factor) return;
        if (text != "-" && !text.ends_with(".npy") && text.find(".safetensors") == text.npos)
          refuse_value("--differential", text, "a number, FILE.npy or FILE.safetensors:NAME");
        arguments.lambda = text;
      },
      "subtract LAMBDA times the weights of the second half: a number, or a TENSOR [H] or [B, H, Lq]. "
      "Key heads have such halves too, or serve both. --out, --weights, --received and --map-out have "
      "signed weights of H heads; other results are those of the 2 H halves");
  add_text(app, "--grad-lambda", "FILE", forms.grad_lambda, "gradient of LAMBDA, in its shape");
  begin_group(app, "Gates on the output");
  add_text(app, "--gate", "TENSOR", arguments.gate,
           "factors of the output, such as a sigmoid; broadcasts to [B, H, Lq, Dv], in the axes of --layout");
  add_text(app, "--grad-gate", "FILE", forms.grad_gate,
           "gradient of the gate, in its shape; --grad-output is that of the gated output");
  begin_group(app, "Tokens on a grid, such as the patches of a picture (each FILE is a .npy file)");
  add_sizes(app, "--grid", forms.grid.sizes, "the axes of the grid, such as 24x32; the last one is fastest");
  add_integer(app, "--grid-first", {0}, forms.grid.first,
              "the first query and key on the grid (default 0); other tokens are left out");
  add_text(app, "--grid-distance", "FILE", forms.grid_distance,
           "how far each token of the grid looks along each axis [B, H, N, axes]");
  add_text(app, "--grid-map", "FILE", forms.grid_map, "the weights between cells of the grid [B, H, C, C]");
  add_sizes(app, "--grid-cells", forms.cells, "the cells of --grid-map along each axis, such as 6x8");
}

void check_form_options(const CLI::App& app, const AttendArguments& arguments) {
  require_beside(app, "--grad-lambda", "--differential", "LAMBDA");
  require_beside(app, "--grad-lambda", "--grad-output", "TENSOR");
  require_beside(app, "--grad-gate", "--gate", "TENSOR");
  require_beside(app, "--grad-gate", "--grad-output", "TENSOR");
  if (!arguments.gate.empty() && arguments.results.output.empty() && arguments.by_output.empty() &&
      !arguments.plan)
    refuse_usage("--gate is given without --out FILE, --grad-output TENSOR or --plan");
  for (const char* option : {"--grid-distance", "--grid-map"}) require_beside(app, option, "--grid", "SIZES");
  require_beside(app, "--grid-map", "--grid-cells", "SIZES");
  require_beside(app, "--grid-cells", "--grid-map", "FILE.npy");
  require_beside(app, "--grid-first", "--grid", "SIZES");
  if (given(app, "--grid") && arguments.forms.grid_distance.empty() && arguments.forms.grid_map.empty())
    refuse_usage("--grid is given without --grid-distance FILE.npy or --grid-map FILE.npy");
  for (const NamedFile& file : form_files(arguments)) require_ending(file.option, file.path, ".npy");
  if (!given(app, "--differential")) return;
  for (const char* option :
       {"--grid", "--grad-lse", "--grad-weights", "--grad-bias", "--grad-sinks", "--grad-decay"})
    if (given(app, option)) refuse_usage(option, " is given with --differential; one of them is expected");
  if (arguments.plan && given(app, "--grad-output"))
    refuse_usage("--grad-output is given with --differential and --plan, which plans the forward pass alone");
}

std::vector<std::pair<std::string, Tensor>> grid_results(const AttendArguments& arguments,
                                                         const AttendInputs& inputs) {
  const FormArguments& forms = arguments.forms;
  std::vector<std::pair<std::string, Tensor>> results;
  const auto add = [&](const std::string& path, const auto& compute) {
    if (path.empty()) return;
    Tensor result = compute();  // of rank 4
    Dims shape;
    for (int axis = 4 - inputs.query.rank(); axis < 4; ++axis) shape.push_back(result.size(axis));
    results.emplace_back(path, Tensor::copy_of(result.view().reshape(shape)));
  };
  add(forms.grid_distance,
      [&] { return grid_distance(inputs.query, inputs.key, forms.grid, inputs.options); });
  add(forms.grid_map,
      [&] { return grid_map(inputs.query, inputs.key, forms.grid, forms.cells, inputs.options); });
  return results;
}

std::vector<NamedFile> form_files(const AttendArguments& arguments) {
  const FormArguments& forms = arguments.forms;
  return {{"--grad-lambda", forms.grad_lambda},
          {"--grad-gate", forms.grad_gate},
          {"--grid-distance", forms.grid_distance},
          {"--grid-map", forms.grid_map}};
}

}  // namespace heed::cli
