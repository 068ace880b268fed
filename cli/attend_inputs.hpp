// The tensors of `heed attend`, read from their files and converted for a call.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attend_arguments.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/kv_cache.hpp"
#include "output_files.hpp"

namespace heed::cli {

/// A tensor and its full shape. Over ranks, the tensor holds only this rank's positions.
struct ReadTensor {
  Tensor tensor;
  Dims whole;
  std::optional<TensorView> elsewhere{};  ///< used instead of `tensor`; the reader owns this memory

  [[nodiscard]] TensorView view() const { return elsewhere ? *elsewhere : tensor.view(); }
};
using TensorReading =
    std::function<ReadTensor(const std::string& option, const std::string& text, const Along& along)>;

/// The inputs of attention(). Views point into `tensors`, or into memory that the TensorReading owns.
struct AttendInputs {
  TensorView query, key, value;  ///< [B, H, L, D] or fewer axes, whatever the layout of the files
  std::optional<KvCache> cache;  ///< if given, there are no views of key and value
  CacheQuery which{};            ///< its sequences
  std::optional<TensorView> by_output, by_lse, by_weights;  ///< gradients of the loss, if given
  std::optional<TensorView> lambda;                         ///< of differential attention
  std::optional<TensorView> gate;                           ///< on the output; laid out like query
  AttentionOptions options;
  std::vector<Tensor> tensors;
  /// The shapes of the whole call, over all ranks. A cache counts as tensors that hold its rows.
  Dims query_shape, key_shape, value_shape;
};

/// The files to read and the options that name them. Throws UsageError for text that names no tensor.
[[nodiscard]] std::vector<NamedFile> attend_input_files(const AttendArguments& arguments);

/// Reads and converts all inputs. `read`, if set, reads the tensors that have positions. Throws Error (io)
/// for an unreadable file, UsageError for a dtype that does not fit.
[[nodiscard]] AttendInputs read_attend_inputs(const AttendArguments& arguments,
                                              const TensorReading& read = {});

/// Distances and maps on the grid, if requested, and their files.
[[nodiscard]] std::vector<std::pair<std::string, Tensor>> grid_results(const AttendArguments& arguments,
                                                                       const AttendInputs& inputs);

/// Swaps the head and length axes: [B, H, L, D] to [B, L, H, D] or back. Views of rank below 3 stay as they
/// are.
template <class View>
[[nodiscard]] View swap_layout(const View& view) {
  return view.rank() < 3 || view.rank() > 4 ? view : view.transpose(-3, -2);
}

}  // namespace heed::cli
