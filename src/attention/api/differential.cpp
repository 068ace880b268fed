// Differential attention, from two attention() calls and one combination of their results.
#include "heed/attention/differential.hpp"

#include <cmath>
#include <cstdint>
#include <span>

#include "attention/api/halves.hpp"
#include "attention/api/seen_results.hpp"
#include "core/index.hpp"
#include "core/message.hpp"
#include "heed/attention/backward.hpp"

namespace heed {
namespace {

using detail::heads_of;
using detail::index;
using detail::refuse;

void check_query(const TensorView& query) {
  if (query.rank() != 4 || query.size(1) < 2 || query.size(1) % 2 != 0)
    refuse("query has shape ", query.shape(), "; [B, 2 H, Lq, D] with two halves of each head is expected");
}

// The factors as f64, for each head or each row.
class Lambda {
 public:
  Lambda(const TensorView& given, std::int64_t batch, std::int64_t heads, std::int64_t rows)
      : of_rows_(given.rank() == 3), heads_(heads), rows_(rows) {
    if ((given.dtype() != DType::f64 && given.dtype() != DType::f32) ||
        (given.shape() != Dims{heads} && given.shape() != Dims{batch, heads, rows}))
      refuse("lambda has dtype ", given.dtype(), " and shape ", given.shape(), "; f64 or f32 of ",
             Dims{heads}, " or ", Dims{batch, heads, rows}, " is expected");
    values_ = Tensor::copy_of(given, DType::f64);
  }
  [[nodiscard]] bool is_of_rows() const { return of_rows_; }
  /// Where the factor of row `row` of [B, H, Lq] is.
  [[nodiscard]] std::size_t place(std::int64_t row) const {
    return index(of_rows_ ? row : row / rows_ % heads_);
  }
  [[nodiscard]] double of_row(std::int64_t row) const { return values_.values<double>()[place(row)]; }
  /// The factor of batch entry and head `bh` of [B, H], if there is one for each head.
  [[nodiscard]] double of_head(std::int64_t bh) const { return values_.values<double>()[index(bh % heads_)]; }

 private:
  Tensor values_;
  bool of_rows_;
  std::int64_t heads_, rows_;
};

// first - lambda second, where each of `parts` equal parts has a factor.
template <class T, class Factor>
void subtract(Tensor& to, const Tensor& first, const Tensor& second, std::int64_t parts, Factor factor) {
  const std::span<T> out = to.values<T>();
  const std::span<const T> a = first.values<T>(), b = second.values<T>();
  const std::size_t width = parts == 0 ? 0 : out.size() / index(parts);
  for (std::int64_t part = 0; width > 0 && part < parts; ++part) {
    const double lambda = factor(part);
    for (std::size_t i = index(part) * width; i < (index(part) + 1) * width; ++i)
      out[i] = static_cast<T>(static_cast<double>(a[i]) - lambda * static_cast<double>(b[i]));
  }
}

template <class Factor>
Tensor difference(const Tensor& first, const Tensor& second, std::int64_t parts, Factor factor) {
  if (first.rank() < 3) return {};  // not asked for
  Tensor to = Tensor::uninitialized(first.shape(), first.dtype());
  if (to.dtype() == DType::f64)
    subtract<double>(to, first, second, parts, factor);
  else
    subtract<float>(to, first, second, parts, factor);
  return to;
}

// The options of each softmax. Throws for sums over rows with factors of their own.
AttentionOptions options_of_half(const TensorView& query, const TensorView& lambda, const Lambda& factors,
                                 const AttentionOptions& options) {
  const bool has_sums =
      has(options.need, Need::received) || options.received_last > 0 || options.map.rows > 0;
  if (factors.is_of_rows() && has_sums)
    refuse("lambda has shape ", lambda.shape(), "; ", Dims{query.size(1) / 2},
           " is expected with received, received_last and map, which sum over rows");
  AttentionOptions each = options;
  each.need |= Need::lse;
  if (query.dtype() == DType::f16 || query.dtype() == DType::bf16) each.output_dtype = DType::f32;
  return each;
}

// `attend(half, options)` runs the softmax of one half.
template <class Attend>
DifferentialResult attend_halves(const TensorView& query, const TensorView& lambda,
                                 const AttentionOptions& options, Attend attend) {
  check_query(query);
  const std::int64_t batch = query.size(0), heads = query.size(1) / 2, rows = query.size(2);
  const Lambda factors(lambda, batch, heads, rows);
  const AttentionOptions each = options_of_half(query, lambda, factors, options);
  DifferentialResult result;
  result.first = attend(0, each);
  result.second = attend(1, each);
  const AttentionResult &a = result.first, &b = result.second;
  const auto of_row = [&](std::int64_t row) { return factors.of_row(row); };
  const auto of_head = [&](std::int64_t bh) { return factors.of_head(bh); };
  const DType dtype = options.output_dtype.value_or(query.dtype());
  result.output = difference(a.output, b.output, batch * heads * rows, of_row);
  if (result.output.dtype() != dtype) result.output = Tensor::copy_of(result.output, dtype);
  result.weights = difference(a.weights, b.weights, batch * heads * rows, of_row);
  result.received = difference(a.received, b.received, batch * heads, of_head);
  result.received_last = difference(a.received_last, b.received_last, batch * heads, of_head);
  result.map = difference(a.map, b.map, batch * heads, of_head);
  return result;
}

// Plans both softmaxes and their differences; `plan_one` plans one softmax.
template <class Plan>
AttentionPlan plan_halves(const TensorView& query, const TensorView& lambda, const AttentionOptions& options,
                          Plan plan_one) {
  check_query(query);
  const Lambda factors(lambda, query.size(0), query.size(1) / 2, query.size(2));
  AttentionPlan plan = plan_one(options_of_half(query, lambda, factors, options));
  AttentionOptions differences = options;  // of which there are fewer results
  differences.need = Need::none;
  for (const Need need : {Need::weights, Need::received})
    if (has(options.need, need)) differences.need |= need;
  differences.top_k = 0;
  plan.multiply_adds *= 2;
  plan.result_bytes = 2 * plan.result_bytes + plan_one(differences).result_bytes;
  return plan;
}

// The query and the options of one half's call over a cache.
struct HalfOverCache {
  Tensor padded{};
  TensorView query;
  AttentionOptions options;

  HalfOverCache(const TensorView& both, std::int64_t half, const KvCache& cache, const AttentionOptions& each)
      : query(heads_of(both, half)), options(each) {
    const std::int64_t width = query.size(3);
    if (cache.head_dim() != 2 * width) return;
    // Zeros beside the query leave out the other half's channels of a key.
    padded = Tensor({query.size(0), query.size(1), query.size(2), 2 * width}, query.dtype());
    copy(query, padded.mutable_view().narrow(3, half * width, width));
    query = padded;
    options.scale = each.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
  }
};

// Whether each half has its own keys.
bool have_own_keys(const TensorView& key, const TensorView& value) {
  if (key.rank() != 4 || value.rank() != 4 ||
      (key.size(1) != value.size(1) && key.size(1) != 2 * value.size(1)))
    refuse("key has shape ", key.shape(), " and value ", value.shape(),
           "; [B, 2 Hkv, Lk, D] or [B, Hkv, Lk, D], and [B, Hkv, Lk, Dv], are expected");
  return key.size(1) != value.size(1);
}

// Adds `more` to `sum` in f64. The result has the dtype of `sum`.
void add(Tensor& sum, const Tensor& more) {
  Tensor total = Tensor::copy_of(sum, DType::f64);
  const Tensor wide = Tensor::copy_of(more, DType::f64);
  const auto to = total.values<double>();
  const auto from = wide.values<double>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  sum = Tensor::copy_of(total, sum.dtype());
}

}  // namespace

DifferentialResult differential_attention(const TensorView& query, const TensorView& key,
                                          const TensorView& value, const TensorView& lambda,
                                          const AttentionOptions& options) {
  return detail::differential_attention(query, key, value, lambda, options, [](const AttentionResult&) {});
}

DifferentialResult detail::differential_attention(const TensorView& query, const TensorView& key,
                                                  const TensorView& value, const TensorView& lambda,
                                                  const AttentionOptions& options, const SeeResults& see) {
  return detail::with_memory_errors([&] {
    const bool own_keys = have_own_keys(key, value);
    return attend_halves(query, lambda, options, [&](std::int64_t half, const AttentionOptions& each) {
      return attention(heads_of(query, half), own_keys ? heads_of(key, half) : key, value, each, see);
    });
  });
}

AttentionPlan plan_differential_attention(const TensorView& query, const TensorView& key,
                                          const TensorView& value, const TensorView& lambda,
                                          const AttentionOptions& options) {
  return detail::with_memory_errors([&] {
    const bool own_keys = have_own_keys(key, value);
    return plan_halves(query, lambda, options, [&](const AttentionOptions& each) {
      return plan_attention(heads_of(query, 0), own_keys ? heads_of(key, 0) : key, value, each);
    });
  });
}

DifferentialResult differential_attention(const TensorView& query, const KvCache& cache,
                                          const TensorView& lambda, const AttentionOptions& options,
                                          const CacheQuery& which) {
  return detail::differential_attention(query, cache, lambda, options, which, [](const AttentionResult&) {});
}

DifferentialResult detail::differential_attention(const TensorView& query, const KvCache& cache,
                                                  const TensorView& lambda, const AttentionOptions& options,
                                                  const CacheQuery& which, const SeeResults& see) {
  return detail::with_memory_errors([&] {
    return attend_halves(query, lambda, options, [&](std::int64_t half, const AttentionOptions& each) {
      const HalfOverCache one(query, half, cache, each);
      return attention(one.query, cache, one.options, which, see);
    });
  });
}

AttentionPlan plan_differential_attention(const TensorView& query, const KvCache& cache,
                                          const TensorView& lambda, const AttentionOptions& options,
                                          const CacheQuery& which) {
  return detail::with_memory_errors([&] {
    return plan_halves(query, lambda, options, [&](const AttentionOptions& each) {
      const HalfOverCache one(query, 0, cache, each);
      return plan_attention(one.query, cache, one.options, which);
    });
  });
}

AttentionResult joined(const DifferentialResult& from) {
  AttentionResult all;
  all.output = from.output;
  all.weights = from.weights;
  all.received = from.received;
  all.received_last = from.received_last;
  all.map = from.map;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const Tensor& first = result<Tensor>(from.first, i);
    Tensor& both = result<Tensor>(all, i);
    const bool is_signed = both.rank() > 1, is_requested = first.rank() > 1;
    if (!is_signed && is_requested) both = detail::joined_heads(first, result<Tensor>(from.second, i));
  }
  all.kernel = from.first.kernel;
  all.isa = from.first.isa;
  all.threads = from.first.threads;
  all.recomputed_rows = from.first.recomputed_rows + from.second.recomputed_rows;
  return all;
}

DifferentialGradients differential_attention_backward(const TensorView& query, const TensorView& key,
                                                      const TensorView& value, const TensorView& lambda,
                                                      const DifferentialResult& result,
                                                      const TensorView& grad_output,
                                                      const AttentionOptions& options) {
  return detail::with_memory_errors([&] {
    check_query(query);
    const bool own_keys = have_own_keys(key, value);
    const std::int64_t batch = query.size(0), heads = query.size(1) / 2, rows = query.size(2);
    const Lambda factors(lambda, batch, heads, rows);
    const Dims expected{batch, heads, rows, value.size(3)};
    if (grad_output.shape() != expected)
      refuse("grad_output has shape ", grad_output.shape(), "; ", expected, " is expected");
    if (result.second.output.shape() != expected)
      refuse("result.second.output has shape ", result.second.output.shape(), "; ", expected, " is expected");

    const DType dtype = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor by_output = Tensor::copy_of(grad_output, DType::f64);
    const Tensor second_output = Tensor::copy_of(result.second.output, DType::f64);
    Tensor by_second(expected, DType::f64), by_lambda(lambda.shape(), DType::f64);
    const auto grad = by_output.values<double>(), second = second_output.values<double>();
    const auto to = by_second.values<double>();
    const std::size_t width = index(value.size(3));
    for (std::int64_t row = 0; row < batch * heads * rows; ++row) {
      const double factor = factors.of_row(row);
      double& sum = by_lambda.values<double>()[factors.place(row)];
      for (std::size_t i = index(row) * width; i < (index(row) + 1) * width; ++i) {
        to[i] = -factor * grad[i];
        sum -= grad[i] * second[i];
      }
    }

    DifferentialGradients gradients{Tensor(query.shape(), query.dtype()), Tensor(key.shape(), key.dtype()),
                                    Tensor(value.shape(), value.dtype()),
                                    Tensor::copy_of(by_lambda, lambda.dtype())};
    for (const std::int64_t half : {0, 1}) {
      const AttentionResult& softmax = half == 0 ? result.first : result.second;
      const Tensor by_half = Tensor::copy_of(half == 0 ? by_output : by_second, dtype);
      Tensor by_value(value.shape(), value.dtype()), by_key;
      if (!own_keys) by_key = Tensor(key.shape(), key.dtype());
      AttentionGradientViews views;
      views.query = heads_of(gradients.query.mutable_view(), half);
      views.key = own_keys ? heads_of(gradients.key.mutable_view(), half) : by_key.mutable_view();
      views.value = by_value.mutable_view();
      attention_backward_into({heads_of(query, half), own_keys ? heads_of(key, half) : key, value,
                               softmax.output, softmax.lse, by_half},
                              options, views);
      add(gradients.value, by_value);
      if (!own_keys) add(gradients.key, by_key);
    }
    return gradients;
  });
}

}  // namespace heed
