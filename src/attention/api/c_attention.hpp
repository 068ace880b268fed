// Converts the arguments of C attention calls to C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "attention/api/c_structs.hpp"
#include "attention/api/c_support.hpp"
#include "core/message.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"

namespace heed::detail::c_api {

[[nodiscard]] std::optional<TensorView> optional_view(std::string_view name, const heed_tensor* tensor);
/// Sets `to` to a view of `tensor`, unless `tensor` is NULL.
void set(MutableTensorView& to, std::string_view name, const heed_tensor* tensor);

/// Throws unless the value is 0 or 1.
bool flag(std::string_view name, std::int32_t value);
template <class Enum>
Enum choice(std::string_view name, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    refuse(name, " is ", value, "; 0 to ", static_cast<std::int32_t>(last), " is expected");
  return static_cast<Enum>(value);
}

[[nodiscard]] heed_attention_options default_attention_options();
[[nodiscard]] AttentionOptions options_or_defaults(const heed_attention_options* options);

/// Copies as much of the text as fits, and fills the rest with zeros.
template <std::size_t kSize>
void copy_text(std::string_view from, char (&to)[kSize]) {
  std::memset(to, 0, kSize);
  std::memcpy(to, from.data(), std::min(from.size(), kSize - 1));
}

/// The caller's places for the statistics of a call; NULL members are skipped.
struct Report {
  heed_attention_run* run = nullptr;
  std::int64_t* recomputed_rows = nullptr;
  void tell(const AttentionRun& took) const;
};

/// A C call's arguments, converted to C++.
struct ForwardCall {
  AttentionOptions options;
  AttentionOutputs outputs;
  Report report;
};
struct BackwardCall {
  AttentionBackwardInputs inputs;
  AttentionOptions options;
  AttentionGradientViews gradients;
  Report report;
};
[[nodiscard]] ForwardCall forward_call(const heed_attention_options* options,
                                       const heed_attention_outputs* outputs);
[[nodiscard]] BackwardCall backward_call(const heed_attention_backward_inputs* inputs,
                                         const heed_attention_options* options,
                                         const heed_attention_gradients* gradients);

}  // namespace heed::detail::c_api
