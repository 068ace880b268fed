#include "random_call.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

namespace heed::test {

namespace {

// Logarithms and cosines to 12 digits. The library's, to 16, took a third of the time of the longest tests.
class Tables {
 public:
  Tables() {
    for (std::size_t k = 0; k < kSize; ++k) {
      const double middle = (static_cast<double>(k) + 0.5) / kSize;
      entries_[k] = {1 / (1 + middle), std::log(1 + middle), std::cos(kTurn * middle),
                     std::sin(kTurn * middle)};
    }
  }

  // log x = log 2^e + log c + log(1 + r), where x = 2^e c (1 + r) and c is in the table.
  double log_of(double x) const {
    constexpr std::uint64_t fraction_bits = (std::uint64_t{1} << 52) - 1;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
    const double fraction = std::bit_cast<double>((bits & fraction_bits) | std::bit_cast<std::uint64_t>(1.0));
    const Entry& entry = entries_[(bits & fraction_bits) >> 44];
    const double r = fraction * entry.inverse - 1;
    return static_cast<double>(exponent) * std::numbers::ln2 + entry.log +
           r * (1 - r * (1.0 / 2 - r * (1.0 / 3 - r / 4)));
  }

  // cos(a + d) = cos a cos d - sin a sin d, where a is in the table.
  double cosine_of_turns(double turns) const {
    const double at = turns * kSize;
    const auto k = static_cast<std::int64_t>(at);
    const Entry& entry = entries_[static_cast<std::size_t>(k)];
    const double d = (at - static_cast<double>(k) - 0.5) * (kTurn / kSize);
    const double square = d * d;
    return entry.cosine * (1 - square * (1.0 / 2 - square / 24)) -
           entry.sine * d * (1 - square * (1.0 / 6 - square / 120));
  }

 private:
  static constexpr std::size_t kSize = 256;
  static constexpr double kTurn = 2 * std::numbers::pi;
  struct Entry {
    double inverse, log, cosine, sine;
  };
  std::array<Entry, kSize> entries_{};
};

const Tables tables;

}  // namespace

// Box and Muller's method. Rounding may give log 1 either sign.
double Draw::normal() {
  const double radius = std::sqrt(std::abs(2 * tables.log_of(1 - uniform())));
  return radius * tables.cosine_of_turns(uniform());
}

void put(const MutableTensorView& view, const Dims& index, double value) {
  std::int64_t at = 0;
  for (int axis = 0; axis < index.size(); ++axis) at += index[axis] * view.strides()[axis];
  switch (view.dtype()) {
    case DType::f64:
      static_cast<double*>(view.data())[at] = value;
      break;
    case DType::f32:
      static_cast<float*>(view.data())[at] = static_cast<float>(value);
      break;
    case DType::f16:
      static_cast<Float16*>(view.data())[at] = to_float16(value);
      break;
    case DType::bf16:
      static_cast<BFloat16*>(view.data())[at] = to_bfloat16(value);
      break;
    case DType::i64:
      static_cast<std::int64_t*>(view.data())[at] = static_cast<std::int64_t>(value);
      break;
    case DType::i32:
      static_cast<std::int32_t*>(view.data())[at] = static_cast<std::int32_t>(value);
      break;
    default:  // bool: any byte
      static_cast<std::uint8_t*>(view.data())[at] = static_cast<std::uint8_t>(value);
  }
}

Tensor& poisoned(const Dims& shape, DType dtype, std::vector<Tensor>& memory) {
  Tensor& tensor = memory.emplace_back(shape, dtype);
  std::memset(tensor.mutable_view().data(), 0xff, static_cast<std::size_t>(tensor.count()) * size_of(dtype));
  return tensor;
}

MutableTensorView strided_view(const Dims& shape, DType dtype, Draw& draw, std::vector<Tensor>& memory,
                               bool may_repeat, double contiguous) {
  const bool plain = draw.chance(contiguous);
  std::vector<int> order;
  for (int axis = shape.size() - 1; axis >= 0; --axis) order.push_back(axis);
  if (!plain)
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<std::size_t>(draw.between(0, static_cast<int>(i) - 1))]);
  const std::int64_t margin = 3;
  std::int64_t reach = 1;
  std::int64_t begin = margin;
  Dims strides = shape;
  for (int axis : order) {
    if (!plain && draw.chance(0.08) && may_repeat) {
      strides[axis] = 0;
      continue;
    }
    const std::int64_t step = !plain && draw.chance(0.25) ? 2 : 1;
    strides[axis] = reach * step;
    reach *= step * std::max<std::int64_t>(shape[axis], 1);
    if (!plain && shape[axis] > 0 && draw.chance(0.15)) {
      begin += strides[axis] * (shape[axis] - 1);
      strides[axis] = -strides[axis];
    }
  }
  Tensor& tensor = poisoned({reach + 2 * margin}, dtype, memory);
  auto* bytes = static_cast<std::byte*>(tensor.mutable_view().data());
  return {bytes + begin * static_cast<std::int64_t>(size_of(dtype)), dtype, shape, strides};
}

namespace {

class CallMaker {
 public:
  CallMaker(std::uint64_t seed, std::uint64_t index, const CallLimits& limits)
      : draw_(seed, index), limits_(limits) {
    call_.seed = seed;
    call_.index = index;
  }

  RandomCall make() {
    draw_sizes();
    make_inputs();
    fill_inputs();
    if (!limits_.bare) {
      make_masks();
      make_operands();
    }
    make_requests();
    return std::move(call_);
  }

 private:
  void draw_sizes() {
    rank_ = static_cast<int>(draw_.pick<std::int64_t>({2, 3, 4, 4, 4, 4}));
    batch_ = rank_ == 4 ? draw_.pick(limits_.batches) : 1;
    kv_heads_ = rank_ >= 3 ? draw_.pick(limits_.kv_heads) : 1;
    heads_ = kv_heads_ * (rank_ >= 3 ? draw_.pick(limits_.groups) : 1);
    if (limits_.document_keys.empty()) {
      const bool own = !limits_.query_lengths.empty();
      queries_ = draw_.pick(own ? limits_.query_lengths : limits_.lengths);
      keys_ = !own && draw_.chance(0.3) ? queries_ : draw_.pick(limits_.lengths);
    } else {
      draw_documents();
    }
    head_dim_ = draw_.pick(limits_.dims);
    value_dim_ = draw_.chance(0.3) ? head_dim_ : draw_.pick(limits_.dims);
    dtype_ = draw_.pick(limits_.dtypes);
  }

  // Draws the cuts between documents; queries and keys share them in one call of five.
  void draw_documents() {
    batch_ = 1;
    const bool same = draw_.chance(0.2);
    query_cuts_ = key_cuts_ = {0};
    for (std::int64_t count = draw_.between(2, limits_.most_documents); count > 0; --count) {
      const std::int64_t queries = draw_.pick(limits_.document_queries);
      query_cuts_.push_back(query_cuts_.back() + queries);
      key_cuts_.push_back(key_cuts_.back() + (same ? queries : draw_.pick(limits_.document_keys)));
    }
    queries_ = query_cuts_.back();
    keys_ = key_cuts_.back();
  }

  Dims shape_of(std::int64_t heads, std::int64_t length, std::int64_t width) const {
    Dims shape;
    if (rank_ == 4) shape.push_back(batch_);
    if (rank_ >= 3) shape.push_back(heads);
    shape.push_back(length);
    shape.push_back(width);
    return shape;
  }

  MutableTensorView strided(const Dims& shape, DType dtype) {
    return strided_view(shape, dtype, draw_, call_.memory);
  }
  MutableTensorView input(std::int64_t heads, std::int64_t length, std::int64_t width) {
    return strided_view(shape_of(heads, length, width), dtype_, draw_, call_.memory, /*may_repeat=*/true,
                        limits_.contiguous);
  }

  // Queries, keys and values of a token side by side, as a fused projection writes them: [B, L, H + 2 Hkv,
  // D].
  void make_packed_inputs() {
    const std::int64_t all = heads_ + 2 * kv_heads_;
    MutableTensorView packed = poisoned({batch_, queries_, all, head_dim_}, dtype_, call_.memory);
    packed = packed.permute({0, 2, 1, 3});
    call_.query = packed.narrow(1, 0, heads_);
    call_.key = packed.narrow(1, heads_, kv_heads_);
    call_.value = packed.narrow(1, heads_ + kv_heads_, kv_heads_);
  }

  void make_inputs() {
    if (rank_ == 4 && queries_ == keys_ && head_dim_ == value_dim_ && draw_.chance(0.5))
      return make_packed_inputs();
    call_.query = input(heads_, queries_, head_dim_);
    call_.key = input(kv_heads_, keys_, head_dim_);
    call_.value = input(kv_heads_, keys_, value_dim_);
  }

  void fill_inputs() {
    call_.family = draw_.pick(limits_.families);
    const int row = rank_ - 2;
    const int column = rank_ - 1;
    for_each_index(call_.query.shape(),
                   [&](const Dims& at) { put(call_.query, at, query_number(at[row], at[column])); });
    for_each_index(call_.key.shape(),
                   [&](const Dims& at) { put(call_.key, at, key_number(at[row], at[column])); });
    for_each_index(call_.value.shape(), [&](const Dims& at) { put(call_.value, at, value_number(at[row])); });
  }
  double query_number(std::int64_t row, std::int64_t column) {
    switch (call_.family) {
      case Family::spread:
        return 25 * draw_.normal();
      case Family::one_hot:
        return column == row % head_dim_ ? 6 : 0;
      case Family::negative:
        return std::abs(draw_.normal());
      case Family::ascending:
        return 1;
      case Family::cancelling:
        return 8;
      default:
        return draw_.normal();
    }
  }
  double key_number(std::int64_t row, std::int64_t column) {
    switch (call_.family) {
      case Family::one_hot:
        return column == row % head_dim_ ? 6 : 0;
      case Family::negative:
        return -std::abs(draw_.normal());
      case Family::ascending:
        // At most 300; f32 could not tell larger scores apart.
        return std::min(0.75, 300 / static_cast<double>(keys_)) * static_cast<double>(row);
      case Family::cancelling:
        return column % 2 == 0 ? cancelled() + draw_.normal() : -cancelled();
      default:
        return draw_.normal();
    }
  }
  // Reduces numbers for wide heads. First-order bounds of f32 grow with the square of the width, and would
  // otherwise check nothing.
  double narrowed(double number, double width) const {
    return number * std::min(1.0, width / static_cast<double>(head_dim_));
  }
  double cancelled() const { return narrowed(100, 24); }
  double value_number(std::int64_t row) {
    switch (call_.family) {
      case Family::negative:
        return -std::abs(draw_.normal());
      case Family::cancelling:
        return (row % 2 == 0 ? 100 : -100) + draw_.normal();
      default:
        return draw_.normal();
    }
  }

  void make_masks() {
    AttentionOptions& options = call_.options;
    options.causal = draw_.chance(0.35);
    if (draw_.chance(0.4)) options.align = Align::bottom_right;
    if (draw_.chance(0.2)) options.query_offset = draw_.between(-5, keys_ + 3);
    if (limits_.extremes && draw_.chance(0.3)) options.query_offset = 500000;
    if (draw_.chance(0.3)) options.window = {draw_.between(-1, 6), draw_.between(-1, 6)};
    if (draw_.chance(0.25)) {
      const double density = draw_.pick<double>({0.1, 0.5, 0.9});
      const MutableTensorView mask = strided(scores_shape(), DType::boolean);
      for_each_index(mask.shape(), [&](const Dims& at) {
        put(mask, at, draw_.chance(density) ? static_cast<double>(draw_.between(1, 255)) : 0.0);
      });
      options.mask = mask;
    }
    if (!key_cuts_.empty()) {
      options.query_segments = integers(query_cuts_);
      options.key_segments = integers(key_cuts_);
    } else if (batch_ == 1 && draw_.chance(0.25))
      make_segments();
    else if (draw_.chance(0.25))
      make_lengths();
  }

  // A shape that broadcasts to [B, H, Lq, Lk].
  Dims scores_shape() {
    const std::array<std::int64_t, 4> full{batch_, heads_, queries_, keys_};
    Dims shape;
    for (std::int64_t axis = draw_.between(0, 3); axis < 4; ++axis)
      shape.push_back(draw_.chance(0.3) ? 1 : full[static_cast<std::size_t>(axis)]);
    return shape;
  }

  DType integer_dtype() { return draw_.chance(0.5) ? DType::i64 : DType::i32; }

  TensorView integers(const std::vector<std::int64_t>& values) {
    MutableTensorView view = strided({static_cast<std::int64_t>(values.size())}, integer_dtype());
    while (view.rank() == 1 && view.shape()[0] > 1 && view.strides()[0] == 0)
      view = strided(view.shape(), view.dtype());
    for (std::size_t i = 0; i < values.size(); ++i)
      put(view, {static_cast<std::int64_t>(i)}, static_cast<double>(values[i]));
    return view;
  }

  void make_lengths() {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < batch_; ++b) lengths.push_back(draw_.between(0, keys_));
    call_.options.kv_lengths = integers(lengths);
  }

  void make_segments() {
    const std::int64_t inner = draw_.between(0, 3);
    const auto offsets = [&](std::int64_t length) {
      std::vector<std::int64_t> cuts{0, length};
      for (std::int64_t s = 0; s < inner; ++s) cuts.push_back(draw_.between(0, length));
      std::sort(cuts.begin(), cuts.end());
      return cuts;
    };
    call_.options.query_segments = integers(offsets(queries_));
    call_.options.key_segments = integers(offsets(keys_));
  }

  static double lowest_of(DType dtype) {
    return dtype == DType::f64    ? std::numeric_limits<double>::lowest()
           : dtype == DType::f16  ? -65504
           : dtype == DType::bf16 ? -0x1.fep127
                                  : static_cast<double>(std::numeric_limits<float>::lowest());
  }

  // Numbers around `mean`. A share `special` of them is minus infinity, or the lowest number if `is_lowest`.
  TensorView floats(const Dims& shape, double spread, double special = 0, bool is_lowest = false,
                    double mean = 0) {
    const DType dtype = draw_.pick<DType>({DType::f64, DType::f32, DType::f16, DType::bf16});
    const MutableTensorView view = strided(shape, dtype);
    const double low = is_lowest ? lowest_of(dtype) : -std::numeric_limits<double>::infinity();
    for_each_index(shape, [&](const Dims& at) {
      put(view, at, draw_.chance(special) ? low : mean + spread * draw_.normal());
    });
    return view;
  }

  void make_operands() {
    AttentionOptions& options = call_.options;
    if (draw_.chance(0.3)) options.scale = narrowed(draw_.pick<double>({0.0, 0.125, 1.0, -0.5}), 8);
    if (draw_.chance(0.2)) options.softcap = draw_.pick<double>({0.5, 5, 30});
    if (draw_.chance(0.25)) options.bias = floats(scores_shape(), 2, draw_.chance(0.5) ? 0.2 : 0);
    if (draw_.chance(0.2))
      options.alibi_slopes = draw_.chance(0.5) ? floats({heads_}, 0.3) : floats({batch_, heads_}, 0.3);
    if (draw_.chance(0.2)) options.sinks = floats({heads_}, 2);
    if (limits_.extremes) {
      if (draw_.chance(0.3)) options.bias = floats(scores_shape(), 2, 0.2, /*is_lowest=*/true);
      if (draw_.chance(0.3)) options.sinks = floats({heads_}, 2, 0, false, /*mean=*/-750);
      // Scores that f32 cannot tell apart; the kernel leaves such rows to the reference.
      if (draw_.chance(0.1)) options.bias = floats(scores_shape(), 1e36, 0, false, /*mean=*/-1e37);
    }
    if (draw_.chance(0.2)) {
      options.dropout.probability = draw_.pick<double>({0.1, 0.5, 0.9});
      options.dropout.seed = draw_.word();
      options.dropout.offset = draw_.word();
    }
  }

  void make_requests() {
    AttentionOptions& options = call_.options;
    for (std::uint32_t bit = 0; bit < 7; ++bit)
      if (draw_.chance(0.5)) options.need |= static_cast<Need>(1u << bit);
    options.scores_stage = static_cast<ScoresStage>(draw_.between(0, 2));
    if (draw_.chance(0.5)) options.top_k = std::min<std::int64_t>(draw_.between(1, keys_ + 2), 1024);
    if (draw_.chance(0.3)) options.received_last = draw_.between(1, queries_ + 2);
    if (draw_.chance(0.4)) options.map = {draw_.between(1, 6), draw_.between(1, 6)};
    if (draw_.chance(0.2)) options.output_dtype = DType::f32;
    options.threads = static_cast<int>(draw_.between(0, 4));
    if (!limits_.received) return;
    options.need = static_cast<Need>(static_cast<std::uint32_t>(options.need | Need::received) &
                                     ~static_cast<std::uint32_t>(Need::weights | Need::scores));
    options.received_last = 0;
    options.map = {};
    options.dropout = {};
    options.mask = {};
    options.query_segments = options.key_segments = {};
    if (dtype_ == DType::bf16) options.output_dtype = DType::f32;  // no bf16-only unit supports this
  }

  Draw draw_;
  CallLimits limits_;
  RandomCall call_;
  int rank_ = 4;
  std::int64_t batch_ = 0, heads_ = 0, kv_heads_ = 0, queries_ = 0, keys_ = 0, head_dim_ = 0, value_dim_ = 0;
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> query_cuts_, key_cuts_;  // between documents; empty if there are none
};

}  // namespace

RandomCall random_call(std::uint64_t seed, std::uint64_t index, const CallLimits& limits) {
  return CallMaker(seed, index, limits).make();
}

bool repeats(const TensorView& view) {
  for (int axis = 0; axis < view.rank(); ++axis)
    if (view.shape()[axis] > 1 && view.strides()[axis] == 0) return true;
  return false;
}

}  // namespace heed::test
