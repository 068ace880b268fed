// The options and outputs of a C call of attention as those of the C++ call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "attention/api/c_structs.hpp"
#include "attention/api/c_support.hpp"
#include "attention/call/message.hpp"
#include "heed/attention.hpp"

namespace heed::detail::c_api {

[[nodiscard]] std::optional<TensorView> optional_view(std::string_view name, const heed_tensor* tensor);
/// A view to write to, where one is given.
void set(MutableTensorView& to, std::string_view name, const heed_tensor* tensor);

/// Throw where an argument is none of 0 and 1, or no enumerator up to `last`.
bool flag(std::string_view name, std::int32_t value);
template <class Enum>
Enum choice(std::string_view name, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    refuse(name, " is ", value, "; 0 to ", static_cast<std::int32_t>(last), " is expected");
  return static_cast<Enum>(value);
}

[[nodiscard]] heed_attention_options default_attention_options();
/// NULL: the defaults.
[[nodiscard]] AttentionOptions options_or_defaults(const heed_attention_options* options);
[[nodiscard]] AttentionOutputs outputs_of(const heed_attention_outputs& from);

/// As much of the text as there is room for, and zeros.
template <std::size_t kSize>
void copy_text(std::string_view from, char (&to)[kSize]) {
  std::memset(to, 0, kSize);
  std::memcpy(to, from.data(), std::min(from.size(), kSize - 1));
}

void write_run(const AttentionRun& run, heed_attention_run& to);

/// Calls attend(options, outputs), an attention_into, and tells the caller what it took.
template <class Attend>
void attend_into(const heed_attention_options* options, const heed_attention_outputs* outputs,
                 Attend attend) {
  require("outputs", outputs);
  AttentionOptions how = options_or_defaults(options);
  const auto known = as_known("outputs", outputs, nothing_given<heed_attention_outputs>());
  const AttentionOutputs where = outputs_of(known);
  if (known.output != nullptr && where.output.dtype() == DType::f32) how.output_dtype = DType::f32;
  const AttentionRun run = attend(how, where);
  if (known.run != nullptr) write_run(run, *known.run);
  if (known.recomputed_rows != nullptr) *known.recomputed_rows = run.recomputed_rows;
}

}  // namespace heed::detail::c_api
