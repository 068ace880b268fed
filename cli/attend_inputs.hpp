// The tensors of `heed attend`, read from their files and made ready for a call.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend_arguments.hpp"
#include "heed/attention.hpp"
#include "output_files.hpp"

namespace heed::cli {

/// A tensor, or over ranks this rank's positions of it, and the shape of the whole.
struct ReadTensor {
  Tensor tensor;
  Dims whole;
  std::optional<TensorView> elsewhere{};  ///< instead of the tensor, in memory of who reads

  [[nodiscard]] TensorView view() const { return elsewhere ? *elsewhere : tensor.view(); }
};
using TensorReading =
    std::function<ReadTensor(const std::string& option, const std::string& text, const Along& along)>;

/// A call of attention(): its views point into `tensors`, or where a TensorReading says.
struct AttendInputs {
  TensorView query, key, value;  ///< [B, H, L, D], or without axes, whatever way the files lie
  std::optional<TensorView> by_output, by_lse, by_weights;  ///< gradients of the loss, where given
  AttentionOptions options;
  std::vector<Tensor> tensors;
  Dims query_shape, key_shape, value_shape;  ///< of the whole call
};

/// The files that will be read, and the options that name them. Throws UsageError where a name is no
/// tensor's.
[[nodiscard]] std::vector<NamedFile> attend_input_files(const AttendArguments& arguments);

/// Reads (by `read`, where given, what has positions) and converts. Throws Error (io) for a file that cannot
/// be read, UsageError for a dtype that does not fit.
[[nodiscard]] AttendInputs read_attend_inputs(const AttendArguments& arguments,
                                              const TensorReading& read = {});

/// A view of [B, H, L, D] as [B, L, H, D], or the other way round, where it has both axes.
template <class View>
[[nodiscard]] View swap_layout(const View& view) {
  return view.rank() < 3 || view.rank() > 4 ? view : view.transpose(-3, -2);
}

}  // namespace heed::cli
