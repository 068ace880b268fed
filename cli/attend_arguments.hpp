// What `heed attend` is told on its command line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "along.hpp"
#include "heed/attention.hpp"
#include "heed/backward.hpp"
#include "mask_arguments.hpp"
#include "rank_options.hpp"

namespace CLI {
class App;
}

namespace heed::cli {

struct AttendArguments {
  // Tensors to read; empty where not given.
  std::string query, key, value;
  std::string mask, bias, alibi_slopes, sinks, kv_lengths, query_segments, key_segments;
  std::string by_output, by_lse, by_weights;  ///< gradients of the loss

  MaskArguments masks;
  RankOptions over_ranks;

  bool length_first = false;   ///< query, key, value and output lie as [B, L, H, D]
  std::optional<DType> dtype;  ///< to compute in; the query's where not given
  AttentionOptions options;    ///< all but its tensors and what it needs

  // Files to write; empty where not asked for.
  ResultSet<std::string> results;
  std::string grad_query, grad_key, grad_value, grad_bias, grad_sinks;

  bool json = false;
  std::int64_t repeat = 1;
};

/// The option with the file of a result.
[[nodiscard]] std::string result_option(const ResultEntry& entry);

/// A gradient: the option with its file, that whose tensor it is the gradient by, and where a call has its
/// values.
struct GradientFile {
  const char* option;
  const char* of;
  std::string AttendArguments::*path;
  Tensor AttentionGradients::*tensor;
  MutableTensorView AttentionGradientViews::*view;
  bool GradientRequest::*request;
  Along along;
};
[[nodiscard]] std::span<const GradientFile> gradient_files();

/// Those that say what is computed, for other commands that do: inputs, scores and masks; kernel and threads.
void add_call_options(CLI::App& app, AttendArguments& arguments);
void add_kernel_options(CLI::App& app, AttendArguments& arguments);
/// Throws UsageError where query, key or value is missing, or segments are given for one side only.
void require_call_options(const CLI::App& app);

void add_attend_options(CLI::App& app, AttendArguments& arguments);

/// What no single option can check, once all are parsed. Throws UsageError.
void complete_attend_arguments(const CLI::App& app, AttendArguments& arguments);

}  // namespace heed::cli
