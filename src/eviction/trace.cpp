// Simulation of a saved call as decoding with an eviction policy.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/message.hpp"
#include "eviction/policy.hpp"

namespace heed {
namespace {

using detail::counted;
using detail::refuse;

// Values do not matter, so a single zero serves as all of them.
TensorView no_values(DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t rows) {
  static constexpr double kZero = 0;
  return {&kZero, dtype, {batch, heads, rows, 1}, {0, 0, 0, 0}};
}

void check_tensors(const TensorView& query, const TensorView& key) {
  for (const auto& [name, view] : {std::pair("query", &query), std::pair("key", &key)})
    if (view->rank() != 4)
      refuse(name, " has shape ", view->shape(), "; four axes, [B, heads, rows, D], are expected");
}

void check_rules(const TensorView& query, const TensorView& key, const AttentionOptions& options) {
  const std::int64_t before = key.size(2) - query.size(2);
  if (!options.causal) refuse("causal is false; true is expected because decoded rows see no later keys");
  if (before < 0)
    refuse("query has ", counted(query.size(2), "row"), " and key ", key.size(2),
           "; at least as many keys are expected");
  const std::int64_t offset =
      options.query_offset.value_or(options.align == Align::bottom_right ? before : 0);
  if (offset != before)
    refuse("align and query_offset put the first row at position ", offset, "; ", before,
           " is expected, so that the last row is at the last key");
  const std::pair<const char*, bool> rules[] = {{"mask", options.mask.has_value()},
                                                {"sparse_mask", !options.sparse_mask.is_empty()},
                                                {"bias", options.bias.has_value()},
                                                {"decay", options.decay.has_value()},
                                                {"score_mod", !options.score_mod.is_empty()},
                                                {"kv_lengths", options.kv_lengths.has_value()},
                                                {"query_segments", options.query_segments.has_value()}};
  for (const auto& [name, given] : rules)
    if (given) refuse(name, " is given; a call without it is expected because rows leave the cache");
}

void check_prompt(std::int64_t queries, const EvictionPolicy& policy, std::int64_t prompt) {
  const std::int64_t least = policy.kind == EvictionKind::snapkv ? policy.recent : 0;
  if (prompt < least || prompt >= queries)
    refuse("prompt is ", prompt, "; ", least, " to ", queries - 1, " of the ", queries, " rows are expected",
           least > 0 ? " because the last of them vote" : "");
}

// The rules of the call without its requested results.
AttentionOptions rules_of(const AttentionOptions& options) {
  AttentionOptions rules = options;
  rules.dropout = {};
  rules.need = Need::none;
  rules.top_k = rules.received_last = 0;
  rules.map = {};
  rules.output_dtype.reset();
  return rules;
}

CacheFormat format_of(DType dtype) {
  return dtype == DType::bf16 ? CacheFormat::bf16 : dtype == DType::f16 ? CacheFormat::f16 : CacheFormat::f32;
}

// Decodes row by row and evicts down to the budget at each row.
class Decoding {
 public:
  Decoding(TensorView query, TensorView key, const AttentionOptions& options, const EvictionPolicy& policy,
           std::int64_t prompt)
      : query_(std::move(query)),
        key_(std::move(key)),
        options_(rules_of(options)),
        policy_(policy),
        prompt_(prompt),
        before_(key_.size(2) - query_.size(2)),
        gone_({key_.size(0), key_.size(2)}, DType::i64),
        cache_({.sequences = key_.size(0),
                .kv_heads = key_.size(1),
                .head_dim = key_.size(3),
                .value_dim = 1,
                .format = format_of(key_.dtype()),
                .capacity = most_rows()}) {
    options_.query_offset.reset();  // a cache knows the positions of its rows
    std::fill(gone_.values<std::int64_t>().begin(), gone_.values<std::int64_t>().end(), query_.size(2));
  }

  Tensor run() {
    append(0, before_ + prompt_);
    if (policy_.kind == EvictionKind::snapkv) {
      receive(prompt_ - policy_.recent, policy_.recent);
      evict(prompt_);
      return std::move(gone_);
    }
    if (prompt_ > 0) receive(0, prompt_);
    for (std::int64_t row = prompt_; row < query_.size(2); ++row) {
      append(before_ + row, 1);
      evict(row);
      receive(row, 1);
    }
    return std::move(gone_);
  }

 private:
  // The rows of the prompt or of the budget, plus one new row.
  [[nodiscard]] std::int64_t most_rows() const {
    const std::int64_t keys = key_.size(2);
    const std::int64_t budget = std::min(policy_.chosen, keys) + std::min(policy_.recent, keys);
    return std::min(keys, std::max(before_ + prompt_, budget) + 1);
  }

  void append(std::int64_t begin, std::int64_t rows) {
    cache_.append(key_.narrow(2, begin, rows), no_values(key_.dtype(), key_.size(0), key_.size(1), rows));
  }

  void receive(std::int64_t begin, std::int64_t rows) {
    if (policy_.kind == EvictionKind::streaming) return;
    AttentionOptions options = options_;
    options.need = Need::received;
    cache_.add_received(attention(query_.narrow(2, begin, rows), cache_, options).received, policy_.decay);
  }

  void evict(std::int64_t row) {
    for (std::int64_t b = 0; b < cache_.sequences(); ++b) {
      const std::vector<std::int64_t> positions = positions_to_evict(cache_, b, policy_);
      cache_.evict(b, positions);
      for (const std::int64_t position : positions) gone_.at<std::int64_t>(b, position) = row;
    }
  }

  TensorView query_, key_;
  AttentionOptions options_;
  EvictionPolicy policy_;
  std::int64_t prompt_;
  std::int64_t before_;  // keys before the first row
  Tensor gone_;
  KvCache cache_;
};

// The share of each row's weights on evicted keys: exp(lse of those alone - lse of all). This keeps all
// digits of a small share, unlike 1 - (share of the remaining keys).
Tensor dropped_shares(const TensorView& query, const TensorView& key, const AttentionOptions& call,
                      const Tensor& gone) {
  const std::int64_t batch = key.size(0), keys = key.size(2);
  Tensor until({batch, 1, keys, 2}, DType::i64);  // forbidden to rows [0, gone)
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t j = 0; j < keys; ++j) until.at<std::int64_t>(b, 0, j, 1) = gone.at<std::int64_t>(b, j);
  const TensorView value = no_values(key.dtype(), batch, key.size(1), keys);
  AttentionOptions options = rules_of(call);
  options.need = Need::lse;
  const Tensor whole = attention(query, key, value, options).lse;
  options.sparse_mask = SparseMask::column_intervals(until, query.size(2));
  options.sinks.reset();  // sinks take no part in the lse of the evicted keys
  Tensor dropped = attention(query, key, value, options).lse;
  const auto share = [](auto to, auto of) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = std::isinf(to[i]) && to[i] < 0
                  ? 0
                  : std::min<std::decay_t<decltype(to[i])>>(1, std::exp(to[i] - of[i]));
  };
  if (dropped.dtype() == DType::f64)
    share(dropped.values<double>(), whole.values<double>());
  else
    share(dropped.values<float>(), whole.values<float>());
  return dropped;
}

}  // namespace

EvictionTrace trace_eviction(const TensorView& query, const TensorView& key, const AttentionOptions& options,
                             const EvictionPolicy& policy, std::int64_t prompt) {
  return detail::with_memory_errors([&] {
    detail::check(policy);
    check_tensors(query, key);
    check_rules(query, key, options);
    // A call without query rows, so that attention() reports all other errors.
    (void)attention(query.narrow(2, 0, 0), key.narrow(2, 0, 0),
                    no_values(key.dtype(), key.size(0), key.size(1), 0), rules_of(options));
    check_prompt(query.size(2), policy, prompt);
    const bool wide = key.dtype() == DType::f64;  // caches do not store f64
    const Tensor narrow_query = wide ? Tensor::copy_of(query, DType::f32) : Tensor();
    const Tensor narrow_key = wide ? Tensor::copy_of(key, DType::f32) : Tensor();
    EvictionTrace trace;
    trace.gone =
        Decoding(wide ? narrow_query.view() : query, wide ? narrow_key.view() : key, options, policy, prompt)
            .run();
    trace.dropped = dropped_shares(query, key, options, trace.gone);
    return trace;
  });
}

}  // namespace heed
