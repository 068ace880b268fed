// The format of a document of heed look, shared by reader and writer: a safetensors file.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/message.hpp"
#include "heed/inspect/document.hpp"

namespace heed::detail {

inline constexpr const char* kLookFormat = "heed look 1";
inline constexpr const char* kExplainFormat = "heed explain 1";

// i64 tensors, present if ids are known; the texts are in the metadata.
inline constexpr const char* kTokenIds = "token_ids";
inline constexpr const char* kKeyTokenIds = "key_token_ids";

enum class Axis { row, key, place };

struct SavedTensor {
  const char* name;
  Tensor AttentionReport::*tensor;
  Axis axis;  // [B, H, Lq], [B, H, Lk], or i64 [B, Lq]
  bool needed;
};

inline constexpr SavedTensor kSavedTensors[] = {
    {"lse", &AttentionReport::lse, Axis::row, true},
    {"max_score", &AttentionReport::max_score, Axis::row, true},
    {"entropy", &AttentionReport::entropy, Axis::row, true},
    {"distance", &AttentionReport::distance, Axis::row, true},
    {"max_weight", &AttentionReport::max_weight, Axis::row, true},
    {"first", &AttentionReport::first, Axis::row, true},
    {"self", &AttentionReport::self, Axis::row, true},
    {"previous", &AttentionReport::previous, Axis::row, true},
    {"next", &AttentionReport::next, Axis::row, true},
    {"induction", &AttentionReport::induction, Axis::row, false},
    {"received", &AttentionReport::received, Axis::key, false},
    {"position", &AttentionReport::position, Axis::place, true},
    {"key_begin", &AttentionReport::key_begin, Axis::place, true},
    {"key_end", &AttentionReport::key_end, Axis::place, true},
};

struct OptionTensor {
  const char* name;
  std::optional<TensorView> AttentionOptions::*view;
};

inline constexpr OptionTensor kOptionTensors[] = {
    {"mask", &AttentionOptions::mask},
    {"bias", &AttentionOptions::bias},
    {"alibi_slopes", &AttentionOptions::alibi_slopes},
    {"decay", &AttentionOptions::decay},
    {"sinks", &AttentionOptions::sinks},
    {"kv_lengths", &AttentionOptions::kv_lengths},
    {"query_segments", &AttentionOptions::query_segments},
    {"key_segments", &AttentionOptions::key_segments},
};

/// A mean of a summary, and the numbers of rows that it is the mean of.
struct SummaryField {
  const char* name;
  double HeadSummary::*value;
  Tensor AttentionReport::*rows;
};

inline constexpr SummaryField kSummaryFields[] = {
    {"entropy", &HeadSummary::entropy, &AttentionReport::entropy},
    {"max_weight", &HeadSummary::max_weight, &AttentionReport::max_weight},
    {"distance", &HeadSummary::distance, &AttentionReport::distance},
    {"first", &HeadSummary::first, &AttentionReport::first},
    {"self", &HeadSummary::self, &AttentionReport::self},
    {"previous", &HeadSummary::previous, &AttentionReport::previous},
    {"next", &HeadSummary::next, &AttentionReport::next},
    {"induction", &HeadSummary::induction, &AttentionReport::induction},
};

/// A long list is stored in pieces: "tokens", "tokens 2", "tokens 3" …
inline std::string piece_name(const std::string& name, std::size_t piece) {
  return piece == 1 ? name : name + " " + std::to_string(piece);
}

inline void require_report(const Document& document) {
  if (!document.has_report) refuse("the document has no report yet; fill_report() makes it");
}

}  // namespace heed::detail
