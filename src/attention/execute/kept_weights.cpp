#include "attention/execute/kept_weights.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "attention/problem/elements.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

// Sums over rows for each key of a head, directly in the caller's memory if it has no gaps.
class KeySums {
 public:
  KeySums(const Output& target, const Segment& s, std::int64_t head, std::int64_t keys)
      : to_(target ? f32_row(target, s.batch, head, s.key_begin) : nullptr), stride_(target.stride[2]) {
    if (to_ != nullptr && stride_ != 1) own_.resize(static_cast<std::size_t>(keys));
  }
  void add(std::int64_t key, const float* weights, std::int64_t count, float factor) {
    if (to_ == nullptr) return;
    float* to = (own_.empty() ? to_ : own_.data()) + key;
    for (std::int64_t k = 0; k < count; ++k) to[k] += weights[k] * factor;
  }
  void write() const {
    for (std::size_t k = 0; k < own_.size(); ++k) to_[static_cast<std::int64_t>(k) * stride_] = own_[k];
  }

 private:
  float* to_;
  std::int64_t stride_;
  std::vector<float> own_;
};

}  // namespace

cpu::KeptWeights KeptRowWeights::room(std::int64_t kv_block) {
  kv_block_ = kv_block;
  std::int64_t keys = 0;
  for (const Segment& s : p_.segments) keys = std::max(keys, s.key_end - s.key_begin);
  const std::int64_t blocks = (keys + kv_block - 1) / kv_block;
  if (weights_.count() == 0) {
    const std::int64_t rows = p_.batch * p_.heads * p_.query_length;
    weights_ = Tensor::uninitialized({rows, blocks * kv_block}, DType::f32);
    shifts_.assign(static_cast<std::size_t>(rows * blocks), cpu::kNotKept);
  }
  kept_ = {weights_.values<float>().data(), shifts_.data(), blocks * kv_block, blocks};
  return kept_;
}

// weight = kept weight * 2^(its shift - the row's final shift) / the row's sum
void KeptRowWeights::finish(std::span<const Segment> segments, const RowSums& rows, int threads) {
  const auto heads = std::ssize(segments) * p_.heads;
  const auto body = [&](std::int64_t i, int) {
    finish_head(segments[static_cast<std::size_t>(i / p_.heads)], i % p_.heads, rows);
  };
  parallel_for(heads, static_cast<int>(std::min<std::int64_t>(threads, heads)), std::cref(body));
}

void KeptRowWeights::finish_head(const Segment& s, std::int64_t head, const RowSums& rows) const {
  const std::int64_t keys = s.key_end - s.key_begin;
  KeySums received(p_.received, s, head, keys), received_last(p_.received_last, s, head, keys);
  for (std::int64_t i = s.query_begin; i < s.query_end; ++i) {
    const std::int64_t row = (s.batch * p_.heads + head) * p_.query_length + i;
    const auto at = static_cast<std::size_t>(row);
    if (rows.status[at] == cpu::RowStatus::out_of_range) continue;  // recomputed with all its results
    const bool is_last = s.query_end - i <= p_.received_last_rows;
    for (std::int64_t key = 0; key < keys; key += kv_block_) {
      const std::int64_t here = std::min(kv_block_, keys - key);
      const float share = factor(at, key / kv_block_, rows);
      float* weights = kept_.weights + row * kept_.keys + key;
      if (share == 0) std::fill_n(weights, here, 0.0f);  // some of them were never written
      received.add(key, weights, here, share);
      if (is_last) received_last.add(key, weights, here, share);
      if (!p_.weights) continue;
      float* to = f32_row(p_.weights, s.batch, head, i) + (s.key_begin + key) * p_.weights.stride[3];
      for (std::int64_t k = 0; k < here; ++k) to[k * p_.weights.stride[3]] = weights[k] * share;
    }
  }
  received.write();
  received_last.write();
}

// The factor of a KV block's weights. Shifts only rise, except in a row that had seen no key yet; its weights
// are 0.
float KeptRowWeights::factor(std::size_t row, std::int64_t block, const RowSums& rows) const {
  const float taken = kept_.shifts[static_cast<std::int64_t>(row) * kept_.kv_blocks + block];
  if (taken == cpu::kNotKept || taken > rows.shift[row]) return 0;
  return std::ldexp(rows.inverse[row], static_cast<int>(std::max(taken - rows.shift[row], -300.0f)));
}

}  // namespace heed::detail
