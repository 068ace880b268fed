// The table of results that attention() can return, one line each. Memory, checks, Python, the options of the
// command and their files iterate over it. docs/architecture.md names what is written by hand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "heed/attention/result_set.hpp"

namespace heed {

/// Results that a call can return besides its output; combine with |. All are based on p_ij as defined in
/// heed/attention/attention.hpp: before dropout. With a sink, the p_ij of a row sum to less than 1.
enum class Need : std::uint32_t {
  none = 0,
  lse = 1u << 0,        ///< [B, H, Lq]: natural logarithm of the softmax denominator
  max_score = 1u << 1,  ///< [B, H, Lq]: largest allowed score, -inf for a row with no key
  entropy = 1u << 2,    ///< [B, H, Lq]: -sum_j p_ij log p_ij, in nats
  distance = 1u << 3,   ///< [B, H, Lq]: sum_j p_ij |p_i - j|
  received = 1u << 4,   ///< [B, H, Lk]: sum_i p_ij
  weights = 1u << 5,    ///< [B, H, Lq, Lk]: p_ij before dropout
  scores = 1u << 6,     ///< [B, H, Lq, Lk]: s_ij at AttentionOptions::scores_stage
  /// [B, H, Lq]: the masked mass, 1 - exp(lse_i - lse'_i), where lse' ignores the window and the boolean and
  /// sparse masks. It is the share of the weight that these masks remove from what causality, lengths and
  /// segments allow. 0 if those allow no key. Costs one more pass over Q and K.
  masked_mass = 1u << 7,
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
  top_k,     ///< [Lq, K], requested by AttentionOptions::top_k
  key,       ///< [Lk]
  key_last,  ///< [Lk], requested by AttentionOptions::received_last
  map,       ///< [R, C], requested by AttentionOptions::map
};

/// Whether the third axis of the result counts query rows.
constexpr bool has_rows(ResultShape shape) { return shape <= ResultShape::top_k; }

/// The dtype of a result.
enum class ResultType {
  output,   ///< AttentionOptions::output_dtype, or the inputs' dtype
  summary,  ///< f64 for f64 inputs, otherwise f32
  index,    ///< i64
};

/// The properties of one result.
struct ResultEntry {
  const char* path;  ///< name of its view in messages: "outputs.lse"
  ResultShape shape;
  ResultType type;
  Need need;            ///< the flag that requests it; none if `shape` tells what requests it
  const char* meaning;  ///< one line, for help in the command and in Python
  /// The name of its ResultSet member, also used in Python: "lse".
  [[nodiscard]] constexpr std::string_view name() const {
    return std::string_view(path).substr(std::string_view("outputs.").size());
  }
};

/// A result's properties, with its member of a ResultSet.
template <class T>
struct ResultLine {
  ResultEntry entry;
  T ResultSet<T>::*member;
};

/// All results, in order.
template <class T>
inline constexpr ResultLine<T> kResults[] = {
    {{"outputs.output", ResultShape::output, ResultType::output, Need::none, "the output [B, H, Lq, Dv]"},
     &ResultSet<T>::output},
    {{"outputs.weights", ResultShape::pair, ResultType::summary, Need::weights,
      "the attention weights before dropout [B, H, Lq, Lk]"},
     &ResultSet<T>::weights},
    {{"outputs.scores", ResultShape::pair, ResultType::summary, Need::scores,
      "the scores before the softmax [B, H, Lq, Lk]"},
     &ResultSet<T>::scores},
    {{"outputs.lse", ResultShape::row, ResultType::summary, Need::lse,
      "log of the softmax denominator [B, H, Lq]"},
     &ResultSet<T>::lse},
    {{"outputs.max_score", ResultShape::row, ResultType::summary, Need::max_score,
      "the largest allowed score of each row [B, H, Lq]"},
     &ResultSet<T>::max_score},
    {{"outputs.entropy", ResultShape::row, ResultType::summary, Need::entropy,
      "the entropy of each row's weights, in nats [B, H, Lq]"},
     &ResultSet<T>::entropy},
    {{"outputs.distance", ResultShape::row, ResultType::summary, Need::distance,
      "the mean of |p - j| under the weights [B, H, Lq]"},
     &ResultSet<T>::distance},
    {{"outputs.masked_mass", ResultShape::row, ResultType::summary, Need::masked_mass,
      "the weight that window and masks remove from each row [B, H, Lq]"},
     &ResultSet<T>::masked_mass},
    {{"outputs.top_k_index", ResultShape::top_k, ResultType::index, Need::none,
      "the K most attended keys of each row, -1 beyond the allowed ones [B, H, Lq, K]"},
     &ResultSet<T>::top_k_index},
    {{"outputs.top_k_weight", ResultShape::top_k, ResultType::summary, Need::none,
      "the weights of these K keys [B, H, Lq, K]"},
     &ResultSet<T>::top_k_weight},
    {{"outputs.received", ResultShape::key, ResultType::summary, Need::received,
      "the sum of the weights that each key received [B, H, Lk]"},
     &ResultSet<T>::received},
    {{"outputs.received_last", ResultShape::key_last, ResultType::summary, Need::none,
      "the same sum over the last W queries [B, H, Lk]"},
     &ResultSet<T>::received_last},
    {{"outputs.map", ResultShape::map, ResultType::summary, Need::none,
      "the weights summed into R x C bins of queries and keys [B, H, R, C]"},
     &ResultSet<T>::map},
};

/// The number of results.
inline constexpr std::size_t kResultCount = std::size(kResults<int>);

/// The properties of result `index` of kResults.
constexpr const ResultEntry& result_entry(std::size_t index) { return kResults<int>[index].entry; }

/// Whether a row's result needs no second pass over its weights: the output, lse, top-k, …
constexpr bool takes_one_pass(const ResultEntry& entry) {
  return has_rows(entry.shape) && entry.shape != ResultShape::pair && entry.need != Need::masked_mass;
}

/// The member of `set` that line `index` of the table describes.
template <class T>
constexpr T& result(ResultSet<T>& set, std::size_t index) {
  return set.*kResults<T>[index].member;
}
template <class T>
constexpr const T& result(const ResultSet<T>& set, std::size_t index) {
  return set.*kResults<T>[index].member;
}

}  // namespace heed
