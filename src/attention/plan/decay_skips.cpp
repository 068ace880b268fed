#include "attention/plan/decay_skips.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <span>

#include "attention/plan/execution_plan.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/score_rules.hpp"
#include "core/index.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

// With fewer rows, reading all keys and values costs more than it saves.
constexpr std::int64_t kEnoughRows = 512;
// T in units of log 2: 149 (the smallest float), 22 (the gain and the keys of a span), and 17 to spare for
// the rounding of scores. The largest norm of a value comes on top.
constexpr double kDistance = 188;
constexpr double kMaxTerm = 0x1p17;        // beyond, the kernel may leave out the row
constexpr double kMaxSquare = 0x1p100;     // of queries and keys; below, the kernel holds their sums
constexpr double kMaxGradSquare = 0x1p50;  // of values and gradients of outputs, likewise
constexpr std::size_t kMaxWidth = 1024;    // of what the fused kernel supports

// Whether a mask can stand for the skipped keys. A bias, say, has no bound, and a masked key l is no
// reference.
bool is_bounded(const Problem& p) {
  return p.decay && p.cache == nullptr && p.query_length >= kEnoughRows && fused_supports(p) && !p.bias &&
         !p.alibi_slopes && !p.score_mod && !p.sinks && !p.mask && p.sparse_masks.empty() &&
         p.rows_of_part.empty() && p.whole.query_length == p.query_length;
}

// Output and lse do not tell a weight of 0 from a forbidden key.
bool wants_sums_only(const Problem& p) {
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (const Output& to = result<Output>(p, i); to && &to != &p.output && &to != &p.lse) return false;
  return true;
}

// The largest sum of squares of some rows; infinity if one is not finite. Eight partial sums make a loop of
// vectors, because this takes a share of every call with a decay.
double largest_square(const Operand& rows, std::int64_t batch, std::int64_t head, const KeyRange& range,
                      std::int64_t width) {
  double largest = 0;
  float memory[kMaxWidth];
  const std::span row = std::span(memory).first(index(width));
  const std::size_t whole = row.size() / 8 * 8;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    read_numbers(rows, batch, head, i, row);
    float sums[8] = {};
    for (std::size_t d = 0; d < whole; d += 8)
      for (std::size_t k = 0; k < 8; ++k) sums[k] += row[d + k] * row[d + k];
    for (std::size_t d = whole; d < row.size(); ++d) sums[0] += row[d] * row[d];
    double square = 0;
    for (const float sum : sums) square += static_cast<double>(sum);
    if (!(square < kMaxSquare)) return kInfinity;
    largest = std::max(largest, square);
  }
  return largest;
}

Coverage coverage_of(const std::int64_t* begins, const MaskTile& tile) {
  const auto [least, most] = std::minmax_element(begins + tile.row_begin, begins + tile.row_end);
  if (tile.key_end <= *least) return Coverage::empty;
  return tile.key_begin >= *most ? Coverage::full : Coverage::cut;
}

}  // namespace

DecaySkips::DecaySkips(const Problem& p, Kernel wanted) {
  if (wanted != Kernel::reference && is_bounded(p) && wants_sums_only(p)) find(p);
}

DecaySkips::DecaySkips(const BackwardProblem& b, Kernel wanted) {
  const Problem& p = b.forward;
  if (wanted == Kernel::reference || b.grad_weights || !is_bounded(p)) return;
  for (std::int64_t batch = 0; batch < p.batch; ++batch)
    for (std::int64_t h = 0; h < p.heads; ++h)
      if (!(largest_square(b.grad_output, batch, h, {0, p.query_length}, p.value_dim) < kMaxGradSquare))
        return;
  find(p);
}

void DecaySkips::find(const Problem& p) {
  heads_ = p.heads;
  rows_ = p.query_length;
  begins_.assign(index(p.batch * heads_ * rows_), 0);
  std::atomic<bool> skips = false;
  parallel_for(p.batch * p.kv_heads, p.threads, [&](std::int64_t head, int) {
    if (find_head(p, head / p.kv_heads, head % p.kv_heads)) skips = true;
  });
  skips_ = skips;
}

bool DecaySkips::find_head(const Problem& p, std::int64_t batch, std::int64_t kv_head) {
  const double key = largest_square(p.key, batch, kv_head, {0, p.key_length}, p.head_dim);
  const double value = largest_square(p.value, batch, kv_head, {0, p.key_length}, p.value_dim);
  if (!(key < kMaxSquare && value < kMaxGradSquare)) return false;
  const double distance = std::numbers::ln2 * (kDistance + std::max(0.0, std::log2(value) / 2));
  const double scale = 1.01 * std::abs(p.scale) * std::sqrt(key);
  const std::int64_t group = p.heads / p.kv_heads;
  bool skips = false;
  for (const Segment& s : p.segments)
    for (std::int64_t h = kv_head * group; s.batch == batch && h < (kv_head + 1) * group; ++h) {
      const auto c = [&](std::int64_t at) { return read(p.decay, batch, h, at); };
      std::vector<double> least;  // of c, over the segment's keys up to each one
      for (std::int64_t j = s.key_begin; j < s.key_end; ++j)
        least.push_back(std::min(c(j), least.empty() ? kInfinity : least.back()));
      for (std::int64_t i = s.query_begin; i < s.query_end; ++i) {
        const std::int64_t position = i - s.query_begin + s.offset;
        const KeyRange seen = visible_keys(p, position, s.keys());
        if (seen.begin == seen.end) continue;
        double bound = scale * std::sqrt(largest_square(p.query, batch, h, {i, i + 1}, p.head_dim));
        if (p.softcap > 0) bound = std::min(bound, p.softcap);
        const double own = c(decay_index(p, s, position)), last = c(s.key_begin + seen.end - 1);
        const double most = own - least[index(seen.end - 1)] + bound;
        if (!(most < kMaxTerm && std::abs(own - last) < kMaxTerm)) continue;
        const double limit = last + 2 * bound + distance;
        const auto first = std::ranges::partition_point(least, [&](double so_far) { return so_far > limit; });
        const std::int64_t begin = first - least.begin();
        if (begin <= seen.begin) continue;
        begins_[index((batch * p.heads + h) * p.query_length + i)] = s.key_begin + begin;
        skips = true;
      }
    }
  return skips;
}

MaskSource DecaySkips::mask() const {
  return {this,
          [](const void* part, const MaskTile& tile) {
            return coverage_of(static_cast<const DecaySkips*>(part)->begins_of(tile), tile);
          },
          [](const void* part, const MaskTile& row, std::uint8_t* visible) {
            const std::int64_t begin = static_cast<const DecaySkips*>(part)->begins_of(row)[row.row_begin];
            if (begin > row.key_begin)
              std::fill(visible, visible + std::min(begin, row.key_end) - row.key_begin, std::uint8_t{0});
          },
          1,
          1,
          {}};
}

}  // namespace heed::detail
