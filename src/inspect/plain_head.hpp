// Attention by its definition, in f64 and one score at a time, for check_document(). Shares with the
// kernels and the report only tensor accessors and scalar formulas (visible keys, softcap, ALiBi).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "heed/inspect/document.hpp"

namespace heed::detail {

/// Rows or keys [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
};

struct PlainPlace {
  std::int64_t position = 0;  ///< p_i, counted from segment.begin
  Range segment;              ///< keys of its segment or within its key length
  Range seen;                 ///< the keys of `segment` that causal and window allow; begin = end: none
};

struct PlainRow {
  PlainPlace place;
  std::vector<double> scores;   ///< one per key; -inf if forbidden
  std::vector<double> weights;  ///< one per key; in a NaN row NaN for allowed keys
  double lse = 0, max_score = 0;
  double size = 0;  ///< |scale| |q| times the largest key norm, and |lse|: scale of rounding errors in scores
};

/// One head of one batch entry. Views of the call are [B, H, L, D].
class PlainHead {
 public:
  PlainHead(const Document& document, std::int64_t batch, std::int64_t head);

  [[nodiscard]] PlainPlace place(std::int64_t row) const;
  [[nodiscard]] PlainRow row(std::int64_t i) const;
  /// sum_j p_ij v_j, and sum_j p_ij |v_j|. Without dropout.
  void output(const PlainRow& row, std::vector<double>& sums, std::vector<double>& sizes);
  /// sum_ij p_ij over a block, p_ij = exp(s_ij - lse_i) with the given lse of each row; NaN if a term is NaN.
  [[nodiscard]] double sum(Range rows, Range keys, const std::vector<double>& lse) const;
  /// exp(sink - lse), the sink's share of a row.
  [[nodiscard]] double sink_share(double lse) const;
  /// Scale of rounding errors in the scores of all rows, without their lse.
  [[nodiscard]] double size() const;

 private:
  [[nodiscard]] double score(const PlainPlace& place, std::int64_t i, std::int64_t j) const;
  [[nodiscard]] double decay_between(const PlainPlace& place, std::int64_t j) const;  // c_i - c_j
  [[nodiscard]] bool sparse_mask_allows(std::int64_t i, std::int64_t j) const;

  const AttentionOptions& options_;
  std::int64_t batch_, head_, heads_;
  Tensor query_, key_;              // [L, D], f64
  TensorView value_view_;           // [Lk, Dv]
  std::optional<Tensor> value_;     // f64, created when needed
  std::optional<TensorView> mask_;  // [Lq, Lk]
  std::optional<TensorView> bias_;
  std::vector<std::int64_t> query_segments_, key_segments_;
  std::int64_t keys_;  // keys of the batch entry
  double scale_;
  double slope_ = 0;
  std::optional<TensorView> decay_;  // c of the head, by position
  double sink_;                      // -inf: no sink
  double longest_query_ = 0, longest_key_ = 0;
};

}  // namespace heed::detail
