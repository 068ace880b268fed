// The table of results: what attention() can return, one line each. Memory, checks, the C interface, Python
// and the command go over it; a new result is a member of ResultSet and a line here (and whatever computes
// it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "heed/result_set.hpp"

namespace heed {

/// What a call can return besides its output; combine with |. All speak of p_ij as heed/attention.hpp defines
/// it: before dropout, and with a sink they sum to less than 1.
enum class Need : std::uint32_t {
  none = 0,
  lse = 1u << 0,        ///< [B, H, Lq]: log of the softmax denominator, natural logarithm
  max_score = 1u << 1,  ///< [B, H, Lq]: largest allowed score, -inf for a row with no key
  entropy = 1u << 2,    ///< [B, H, Lq]: -sum_j p_ij log p_ij, in nats
  distance = 1u << 3,   ///< [B, H, Lq]: sum_j p_ij |p_i - j|
  received = 1u << 4,   ///< [B, H, Lk]: sum_i p_ij
  weights = 1u << 5,    ///< [B, H, Lq, Lk]: p_ij before dropout
  scores = 1u << 6,     ///< [B, H, Lq, Lk]: s_ij at AttentionOptions::scores_stage
  /// [B, H, Lq]: 1 - exp(lse_i - lse'_i), lse' without window, boolean and sparse masks: the weight of what
  /// these forbid among all that causality, lengths and segments leave. 0 where nothing is left. One more
  /// pass over Q and K.
  dropped = 1u << 7,
};
constexpr Need operator|(Need a, Need b) {
  return static_cast<Need>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr Need& operator|=(Need& a, Need b) { return a = a | b; }
constexpr bool has(Need set, Need one) {
  return (static_cast<std::uint32_t>(set) & static_cast<std::uint32_t>(one)) != 0;
}

/// The axes of a result after [B, H].
enum class ResultShape {
  output,    ///< [Lq, Dv]
  pair,      ///< [Lq, Lk]
  row,       ///< [Lq]
  top_k,     ///< [Lq, K], asked for by AttentionOptions::top_k
  key,       ///< [Lk]
  key_last,  ///< [Lk], asked for by AttentionOptions::received_last
  map,       ///< [R, C], asked for by AttentionOptions::map
};

/// Whether its third axis is that of the query rows.
constexpr bool has_rows(ResultShape shape) { return shape <= ResultShape::top_k; }

enum class ResultType {
  output,   ///< AttentionOptions::output_dtype, or the inputs' dtype
  summary,  ///< f64 for inputs of f64, f32 for all others
  index,    ///< i64
};

struct ResultEntry {
  const char* path;  ///< how messages call the view for it: "outputs.lse"
  ResultShape shape;
  ResultType type;
  Need need;            ///< what asks for it; none where its shape says what does
  const char* meaning;  ///< in a line
  /// As the member of ResultSet, and as Python calls it: "lse".
  [[nodiscard]] constexpr std::string_view name() const {
    return std::string_view(path).substr(std::string_view("outputs.").size());
  }
};

template <class T>
struct ResultLine {
  ResultEntry entry;
  T ResultSet<T>::*member;
};

template <class T>
inline constexpr ResultLine<T> kResults[] = {
    {{"outputs.output", ResultShape::output, ResultType::output, Need::none, "[B, H, Lq, Dv]"},
     &ResultSet<T>::output},
    {{"outputs.weights", ResultShape::pair, ResultType::summary, Need::weights,
      "[B, H, Lq, Lk]: p_ij before dropout"},
     &ResultSet<T>::weights},
    {{"outputs.scores", ResultShape::pair, ResultType::summary, Need::scores,
      "[B, H, Lq, Lk]: before the softmax, at scores_stage"},
     &ResultSet<T>::scores},
    {{"outputs.lse", ResultShape::row, ResultType::summary, Need::lse,
      "[B, H, Lq]: log of the softmax denominator"},
     &ResultSet<T>::lse},
    {{"outputs.max_score", ResultShape::row, ResultType::summary, Need::max_score,
      "[B, H, Lq]: the largest allowed score"},
     &ResultSet<T>::max_score},
    {{"outputs.entropy", ResultShape::row, ResultType::summary, Need::entropy,
      "[B, H, Lq]: of the weights, in nats"},
     &ResultSet<T>::entropy},
    {{"outputs.distance", ResultShape::row, ResultType::summary, Need::distance,
      "[B, H, Lq]: mean |p_i - j| under the weights"},
     &ResultSet<T>::distance},
    {{"outputs.dropped", ResultShape::row, ResultType::summary, Need::dropped,
      "[B, H, Lq]: the weight that masks take away"},
     &ResultSet<T>::dropped},
    {{"outputs.top_k_index", ResultShape::top_k, ResultType::index, Need::none,
      "[B, H, Lq, K]: the most attended keys, -1 beyond the allowed ones"},
     &ResultSet<T>::top_k_index},
    {{"outputs.top_k_weight", ResultShape::top_k, ResultType::summary, Need::none,
      "[B, H, Lq, K]: their weights"},
     &ResultSet<T>::top_k_weight},
    {{"outputs.received", ResultShape::key, ResultType::summary, Need::received,
      "[B, H, Lk]: what each key received"},
     &ResultSet<T>::received},
    {{"outputs.received_last", ResultShape::key_last, ResultType::summary, Need::none,
      "[B, H, Lk]: the same over the last rows only"},
     &ResultSet<T>::received_last},
    {{"outputs.map", ResultShape::map, ResultType::summary, Need::none,
      "[B, H, R, C]: the weights summed into bins"},
     &ResultSet<T>::map},
};

inline constexpr std::size_t kResultCount = std::size(kResults<int>);

constexpr const ResultEntry& result_entry(std::size_t index) { return kResults<int>[index].entry; }

/// The member of a set that belongs to a line of the table.
template <class T>
constexpr T& result(ResultSet<T>& set, std::size_t index) {
  return set.*kResults<T>[index].member;
}
template <class T>
constexpr const T& result(const ResultSet<T>& set, std::size_t index) {
  return set.*kResults<T>[index].member;
}

}  // namespace heed
