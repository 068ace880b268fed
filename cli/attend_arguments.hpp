// The command line arguments of `heed attend`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/inspect/grid.hpp"
#include "mask_arguments.hpp"
#include "output_files.hpp"
#include "rank_options.hpp"

namespace heed::cli {

/// The axis of a tensor that counts positions, and the sequence that these belong to.
struct Along {
  enum Sequence { nothing, queries, keys } sequence = nothing;
  int axis = -2;            ///< from the end
  bool by_layout = false;   ///< --layout may put it before the heads
  bool broadcasts = false;  ///< the axis may have size 1, or be missing
  [[nodiscard]] int axis_of(int rank, bool length_first) const {
    return by_layout && length_first && (rank == 3 || rank == 4) ? -3 : axis;
  }
};

/// kAlongQueries: query and output. kAlongKeys: key and value. kAlongRows: tensors that broadcast to [B, H,
/// Lq, Lk].
inline constexpr Along kAlongQueries{.sequence = Along::queries, .by_layout = true};
inline constexpr Along kAlongKeys{.sequence = Along::keys, .by_layout = true};
inline constexpr Along kAlongRows{.sequence = Along::queries, .broadcasts = true};

/// Forms of attention (attend_forms.cpp).
struct FormArguments {
  TokenGrid grid;  ///< no axes: no grid
  std::vector<std::int64_t> cells;
  std::string grad_lambda, grad_gate, grid_distance, grid_map;  ///< files to write; empty if not requested
};

struct AttendArguments {
  // Tensor arguments to read; empty if not given.
  std::string query, key, value;
  std::string cache;                          ///< a file that stands for key and value
  std::vector<std::int64_t> cache_sequences;  ///< its sequences to attend; empty: all
  std::string mask, bias, alibi_slopes, decay, sinks, kv_lengths, query_segments, key_segments;
  std::string by_output, by_lse, by_weights;  ///< gradients of the loss
  std::string lambda;                         ///< of differential attention, or the number `factor`
  std::optional<double> factor;
  std::string gate;

  FormArguments forms;

  MaskArguments masks;
  RankOptions over_ranks;

  bool length_first = false;   ///< query, key, value and output lie as [B, L, H, D]
  std::optional<DType> dtype;  ///< to compute in; by default the query's
  AttentionOptions options;    ///< all options except tensors and `need`

  // Files to write; empty if not requested.
  ResultSet<std::string> results;
  std::string grad_query, grad_key, grad_value, grad_bias, grad_sinks, grad_decay;

  bool json = false;
  bool plan = false;  ///< print how the call would run, and compute nothing
  std::int64_t repeat = 1;
};

[[nodiscard]] std::string result_option(const ResultEntry& entry);

/// A gradient: the option that names its file, the input option that it belongs to, and its members in the
/// structs of a backward call.
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

/// --map RxC and --window LEFT,RIGHT, which other commands have, too.
void add_map_option(CLI::App& app, MapSize& map, const std::string& help);
void add_window_option(CLI::App& app, Window& window);

/// Options that define the call, shared with other commands: inputs, scores and masks. add_kernel_options()
/// adds kernel and threads.
void add_call_options(CLI::App& app, AttendArguments& arguments);
void add_kernel_options(CLI::App& app, AttendArguments& arguments);
/// Throws UsageError if query, key or value is missing, or if segments are given for one side only. A cache
/// stands for key, value and the segments of keys.
void require_call_options(const CLI::App& app, bool has_cache = false);

/// Options of differential attention and of tokens on a grid, and checks of those that do not go together.
void add_form_options(CLI::App& app, AttendArguments& arguments);
void check_form_options(const CLI::App& app, const AttendArguments& arguments);
/// The files of forms to write.
[[nodiscard]] std::vector<NamedFile> form_files(const AttendArguments& arguments);

void add_attend_options(CLI::App& app, AttendArguments& arguments);

/// Checks that need several options; call it after parsing. Throws UsageError.
void complete_attend_arguments(const CLI::App& app, AttendArguments& arguments);

}  // namespace heed::cli
