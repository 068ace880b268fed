// The softmax of one row, in f64, for the kernels that follow the formulas directly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "attention/problem/score_rules.hpp"

namespace heed::detail {

inline double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
}

inline constexpr double kNoWeight = -746;  // exp of anything smaller is 0

struct Normaliser {
  double max_score = -kInfinity;  ///< over the keys, without the sink
  double lse = -kInfinity;
  double sink_weight = 0;  ///< exp(sink - lse)
};

/// The largest score of each piece of kPiece scores, and of all of them. A piece far below the largest score
/// needs no exponential.
class LargestScores {
 public:
  static constexpr std::size_t kPiece = 64;

  void find(std::span<const double> scores) {
    of_pieces_.clear();
    all_ = -kInfinity;
    Lanes sum{};
    for (std::size_t begin = 0; begin < scores.size(); begin += kPiece) {
      of_pieces_.push_back(largest(scores.subspan(begin, std::min(kPiece, scores.size() - begin)), sum));
      all_ = std::max(all_, of_pieces_.back());
    }
    // Comparisons pass over a NaN; sums do not.
    double total = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
    if (std::isnan(total) && std::ranges::any_of(scores, [](double score) { return std::isnan(score); }))
      all_ = std::numeric_limits<double>::quiet_NaN();
  }

  [[nodiscard]] double all() const { return all_; }
  /// Calls piece(begin, end) for the pieces that may hold a score within `reach` of m.
  template <class Piece>
  void each_piece_within(double reach, double m, std::size_t scores, Piece piece) const {
    for (std::size_t at = 0; at < of_pieces_.size(); ++at)
      if (!(of_pieces_[at] - m < reach)) piece(at * kPiece, std::min(scores, (at + 1) * kPiece));
  }

 private:
  static constexpr std::size_t kLanes = 2, kVectors = 4;
  using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));

  static double largest(std::span<const double> piece, Lanes& sum) {
    double found = -kInfinity;
    Lanes most[kVectors], sums[kVectors] = {};
    for (Lanes& lanes : most) lanes = found - Lanes{};
    std::size_t j = 0;
    for (; j + kVectors * kLanes <= piece.size(); j += kVectors * kLanes)
      for (std::size_t v = 0; v < kVectors; ++v) {
        Lanes next;
        std::memcpy(&next, piece.data() + j + v * kLanes, sizeof next);
        sums[v] += next;
        most[v] = next > most[v] ? next : most[v];
      }
    for (std::size_t v = 0; v < kVectors; ++v) {
      sum += sums[v];
      for (std::size_t lane = 0; lane < kLanes; ++lane) found = std::max(found, double{most[v][lane]});
    }
    for (; j < piece.size(); ++j) {
      sum[0] += piece[j];
      found = std::max(found, piece[j]);
    }
    return found;
  }

  std::vector<double> of_pieces_;
  double all_ = -kInfinity;
};

/// Working memory of normalise().
struct SoftmaxScratch {
  LargestScores largest;
  std::vector<std::int64_t> weighted;  ///< keys in order; every other key has the weight 0
};

/// lse_i = m + log(sum_j exp(s_ij - m) + exp(sink - m)) and p_ij = exp(s_ij - m) / sum. m is the largest of
/// all scores and the sink, so no exponential overflows; `weights` become the p_ij. A forbidden key has the
/// score -inf and the weight 0. A row with neither key nor sink has lse -inf. A largest score of +inf makes
/// inf - inf, so weights and lse become NaN, as in PyTorch.
inline Normaliser normalise(std::span<const double> scores, std::span<double> weights, double sink,
                            SoftmaxScratch& scratch) {
  scratch.largest.find(scores);
  scratch.weighted.clear();
  Normaliser row;
  row.max_score = scratch.largest.all();
  const double m = larger(row.max_score, sink);
  const double sink_part = sink == -kInfinity ? 0 : std::exp(sink - m);
  double sum = sink_part;
  const auto weigh = [&](std::size_t j, double weight) {
    weights[j] = weight;
    sum += weight;
    scratch.weighted.push_back(static_cast<std::int64_t>(j));
  };
  std::ranges::fill(weights, 0.0);
  if (!(m < kInfinity)) {
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (scores[j] != -kInfinity) weigh(j, std::numeric_limits<double>::quiet_NaN());
    sum = std::numeric_limits<double>::quiet_NaN();
  } else {
    scratch.largest.each_piece_within(kNoWeight, m, scores.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t j = begin; j < end; ++j)
        if (scores[j] != -kInfinity && !(scores[j] - m < kNoWeight)) weigh(j, std::exp(scores[j] - m));
    });
    scratch.largest.each_piece_within(kNoWeight, m, scores.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t j = begin; sum > 0 && j < end; ++j) weights[j] /= sum;
    });
  }
  if (sink != -kInfinity) row.sink_weight = sink_part / sum;
  if (m != -kInfinity) row.lse = m + std::log(sum);
  return row;
}

}  // namespace heed::detail
