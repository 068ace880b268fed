// Makes arbitrary calls. attention() and attention_backward_into() either throw Error or return the
// documented shapes. Where all numbers are ordinary, attention() also agrees with the definitions within the
// rounding bounds. Every view has memory of exactly its extent, so the sanitizer sees any read or write
// outside it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <optional>
#include <vector>

#include "../tests/fused_rounding.hpp"
#include "../tests/naive_attention.hpp"
#include "choices.hpp"
#include "fuzz_support.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/error.hpp"

// Makes a failed allocation an Error; by default the sanitizer would end the program.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

using heed::Dims;
using heed::DType;
using heed::fuzz::require;

class CallMaker {
 public:
  CallMaker(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {
    for (std::int64_t* size_of_axis : {&batch_, &kv_heads_, &query_length_, &key_length_, &dim_, &value_dim_})
      *size_of_axis = bytes_.integer<std::int64_t>(0, 5);
    heads_ = kv_heads_ * bytes_.integer<std::int64_t>(0, 3);
    rank_ = bytes_.integer<int>(2, 4);
    dtype_ = bytes_.one_of({DType::f64, DType::f32, DType::f16, DType::bf16});
  }

  heed::MutableTensorView query() { return view({batch_, heads_, query_length_, dim_}, rank_, dtype_); }
  heed::MutableTensorView key() { return view({batch_, kv_heads_, key_length_, dim_}, rank_, dtype_); }
  heed::MutableTensorView value() {
    return view({batch_, kv_heads_, key_length_, value_dim_}, rank_, dtype_);
  }

  heed::AttentionOptions options() {
    const Dims scores{batch_, heads_, query_length_, key_length_};
    heed::AttentionOptions options;
    options.scale = maybe_number();
    options.causal = bytes_.boolean();
    options.align = bytes_.one_of({heed::Align::top_left, heed::Align::bottom_right});
    if (rarely()) options.query_offset = integer();
    if (rarely()) options.window = {integer(), integer()};
    if (rarely()) options.mask = view(scores, 4, DType::boolean);
    if (rarely()) options.bias = view(scores, 4, dtype_);
    options.softcap = maybe_number().value_or(0);
    if (rarely()) options.alibi_slopes = view({batch_, heads_}, 2, dtype_);
    if (rarely()) options.sinks = view({heads_}, 1, dtype_);
    if (rarely()) options.kv_lengths = offsets(batch_, key_length_);
    if (rarely()) {
      const auto segments = bytes_.integer<std::int64_t>(0, 4);
      if (!rarely()) options.query_segments = offsets(segments, query_length_);
      if (!rarely()) options.key_segments = offsets(segments, key_length_);
    }
    if (rarely())
      options.dropout = {maybe_number().value_or(0.5), bytes_.integer<std::uint64_t>(),
                         bytes_.integer<std::uint64_t>()};
    options.need = static_cast<heed::Need>(bytes_.integer<std::uint32_t>() & 255);
    options.scores_stage =
        bytes_.one_of({heed::ScoresStage::raw, heed::ScoresStage::softcap, heed::ScoresStage::bias});
    if (rarely()) options.top_k = result_size();
    if (rarely()) options.received_last = integer();
    if (rarely()) options.map = {result_size(), result_size()};
    if (rarely()) options.output_dtype = any_dtype();
    options.kernel = bytes_.one_of({heed::Kernel::automatic, heed::Kernel::reference, heed::Kernel::fused});
    options.threads = rarely() ? bytes_.integer<int>() : bytes_.integer(0, 3);
    return options;
  }

  heed::AttentionOutputs outputs() {
    const DType small = dtype_ == DType::f64 ? DType::f64 : DType::f32;
    const int missing = 4 - rank_;
    const Dims row{batch_, heads_, query_length_};
    const Dims column{batch_, heads_, key_length_};
    const Dims pair{batch_, heads_, query_length_, key_length_};
    const auto bins = bytes_.integer<std::int64_t>(0, 5);
    heed::AttentionOutputs outputs;
    if (!rarely()) outputs.output = view({batch_, heads_, query_length_, value_dim_}, rank_, dtype_);
    if (rarely()) outputs.weights = view(pair, rank_, small);
    if (rarely()) outputs.scores = view(pair, rank_, small);
    if (rarely()) outputs.lse = view(row, 3 - missing, small);
    if (rarely()) outputs.max_score = view(row, 3 - missing, small);
    if (rarely()) outputs.entropy = view(row, 3 - missing, small);
    if (rarely()) outputs.distance = view(row, 3 - missing, small);
    if (rarely()) outputs.top_k_index = view({batch_, heads_, query_length_, bins}, rank_, DType::i64);
    if (rarely()) outputs.top_k_weight = view({batch_, heads_, query_length_, bins}, rank_, small);
    if (rarely()) outputs.received = view(column, 3 - missing, small);
    if (rarely()) outputs.received_last = view(column, 3 - missing, small);
    if (rarely()) outputs.map = view({batch_, heads_, bins, bins}, rank_, small);
    return outputs;
  }

  bool into_memory_of_the_caller() { return bytes_.boolean(); }
  bool wants_gradients() { return bytes_.boolean(); }

  heed::AttentionBackwardInputs backward_inputs(const heed::TensorView& query, const heed::TensorView& key,
                                                const heed::TensorView& value) {
    const DType small = dtype_ == DType::f64 ? DType::f64 : DType::f32;
    const Dims output{batch_, heads_, query_length_, value_dim_};
    const Dims row{batch_, heads_, query_length_};
    heed::AttentionBackwardInputs inputs{query, key, value, {}, {}, {}};
    inputs.output = view(output, rank_, dtype_);
    inputs.lse = view(row, rank_ - 1, small);
    inputs.grad_output = view(output, rank_, dtype_);
    if (rarely()) inputs.grad_lse = view(row, rank_ - 1, small);
    if (rarely()) inputs.grad_weights = view({batch_, heads_, query_length_, key_length_}, rank_, small);
    return inputs;
  }

  heed::AttentionGradientViews gradients() {
    heed::AttentionGradientViews gradients;
    if (!rarely()) gradients.query = query();
    if (!rarely()) gradients.key = key();
    if (!rarely()) gradients.value = value();
    if (rarely()) gradients.bias = view({batch_, heads_, query_length_, key_length_}, 4, dtype_);
    if (rarely()) gradients.sinks = view({heads_}, 1, dtype_);
    return gradients;
  }

 private:
  // True once in eight times; never once the bytes are used up.
  bool rarely() { return bytes_.integer(0, 7) == 7; }
  DType any_dtype() { return static_cast<DType>(bytes_.integer(0, 7)); }

  std::int64_t integer() {
    return bytes_.boolean() ? bytes_.integer<std::int64_t>(-8, 8) : bytes_.integer<std::int64_t>();
  }

  // The size of a result: small, or larger than any memory. Sizes in between could be granted, and
  // libFuzzer's memory limit would report them as faults.
  std::int64_t result_size() {
    return bytes_.boolean() ? bytes_.integer<std::int64_t>(-1, 8)
                            : bytes_.integer<std::int64_t>(std::int64_t{1} << 48,
                                                           std::numeric_limits<std::int64_t>::max());
  }

  std::optional<double> maybe_number() {
    if (!rarely()) return std::nullopt;
    const auto bits = bytes_.integer<std::uint64_t>();
    return std::bit_cast<double>(bits);
  }

  // A view of the last `rank` axes of `shape`; rarely one of another size, rank or dtype.
  heed::MutableTensorView view(const Dims& shape, int rank, DType dtype) {
    Dims actual;
    for (int axis = std::max(0, shape.size() - rank); axis < shape.size(); ++axis)
      actual.push_back(rarely() ? bytes_.integer<std::int64_t>(0, 5) : shape[axis]);
    if (rarely() && actual.size() < heed::kMaxRank) actual.push_back(1);
    return in_memory(actual, rarely() ? any_dtype() : dtype);
  }

  // A view with arbitrary strides. Its memory spans the lowest to the highest element and holds arbitrary
  // bytes.
  heed::MutableTensorView in_memory(const Dims& shape, DType dtype) {
    Dims strides = heed::contiguous_strides(shape);
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (int axis = 0; axis < shape.size(); ++axis) {
      if (rarely()) strides[axis] = bytes_.integer<std::int64_t>(-12, 12);
      const std::int64_t reach = (shape[axis] - 1) * strides[axis];
      (reach < 0 ? lowest : highest) += reach;
    }
    if (heed::element_count(shape) == 0) lowest = highest = 0;
    const auto width = static_cast<std::int64_t>(heed::size_of(dtype));
    // Each view has an allocation of its own. One more byte in front makes the memory misaligned.
    const std::size_t shift = rarely() ? 1 : 0;
    std::vector<std::uint8_t>& memory =
        memory_.emplace_back(static_cast<std::size_t>((highest - lowest + 1) * width) + shift);
    const std::uint8_t fill = bytes_.integer<std::uint8_t>();
    const std::int64_t count = highest - lowest + 1;
    if (heed::is_floating(dtype) && fill % 4 == 3) {
      const heed::Tensor numbers = ordinary_numbers(count, dtype);
      std::memcpy(memory.data() + shift, numbers.view().data(), memory.size() - shift);
      return {memory.data() + shift + -lowest * width, dtype, shape, strides};
    }
    for (std::uint8_t& byte : memory)
      byte = bytes_.remaining_bytes() > 64 && fill % 2 == 1 ? bytes_.integer<std::uint8_t>() : fill;
    return {memory.data() + shift + -lowest * width, dtype, shape, strides};
  }

  // Multiples of 1/8 from -16 to 15.875, which every dtype holds exactly.
  heed::Tensor ordinary_numbers(std::int64_t count, DType dtype) {
    heed::Tensor numbers({count}, DType::f64);
    for (double& number : numbers.values<double>())
      number = bytes_.remaining_bytes() > 64 ? bytes_.integer<std::int8_t>() / 8.0 : 0.5;
    return heed::Tensor::copy_of(numbers, dtype);
  }

  // [count + 1] or [count] integers that end with `last`.
  heed::MutableTensorView offsets(std::int64_t count, std::int64_t last) {
    const heed::MutableTensorView numbers =
        view({count + bytes_.integer(0, 1)}, 1, bytes_.one_of({DType::i64, DType::i32}));
    if (numbers.rank() != 1 || numbers.strides()[0] <= 0) return numbers;
    // Uses memcpy, since the view may be misaligned.
    const auto width = static_cast<std::int64_t>(heed::size_of(numbers.dtype()));
    for (std::int64_t i = 0; i < numbers.size(0); ++i) {
      const std::int64_t number = i + 1 == numbers.size(0) ? last : bytes_.integer<std::int64_t>(-1, last);
      auto* place = static_cast<std::uint8_t*>(numbers.data()) + i * numbers.strides()[0] * width;
      std::memcpy(place, &number, static_cast<std::size_t>(width));  // little endian: i32 is the lower half
    }
    return numbers;
  }

  heed::fuzz::Choices bytes_;
  std::int64_t batch_, heads_, kv_heads_, query_length_, key_length_, dim_, value_dim_;
  int rank_;
  DType dtype_;
  std::list<std::vector<std::uint8_t>> memory_;
};

// Requires the output's shape to be the query's, with the value's last axis.
void check_result(const heed::TensorView& query, const heed::TensorView& value,
                  const heed::AttentionResult& result) {
  Dims expected = query.shape();
  expected[expected.size() - 1] = value.size(-1);
  require(result.output.shape() == expected);
}

// Numbers of this range keep the errors of scores negligible and cannot overflow f32 on the way.
bool is_ordinary(double number) {
  return number == 0 || (std::abs(number) >= 0x1p-10 && std::abs(number) <= 0x1p10);
}
bool is_ordinary(const heed::TensorView& view) {
  const heed::Tensor numbers = heed::Tensor::copy_of(view, DType::f64);
  return std::all_of(numbers.values<double>().begin(), numbers.values<double>().end(),
                     [](double number) { return is_ordinary(number); });
}
bool is_ordinary(const heed::AttentionOptions& options) {
  const auto near = [](std::int64_t number) { return std::abs(static_cast<double>(number)) < 0x1p20; };
  for (const auto& view : {options.bias, options.alibi_slopes, options.sinks})
    if (view && !is_ordinary(*view)) return false;
  return is_ordinary(options.scale.value_or(1)) && is_ordinary(options.softcap) &&
         near(options.query_offset.value_or(0)) && near(options.window.left) && near(options.window.right);
}

void check_numbers(const heed::TensorView& query, const heed::TensorView& key, const heed::TensorView& value,
                   const heed::AttentionOptions& options, const heed::AttentionResult& result) {
  if (!is_ordinary(query) || !is_ordinary(key) || !is_ordinary(value) || !is_ordinary(options)) return;
  const bool fused = result.kernel == heed::Kernel::fused;
  heed::test::RowTally tally;  // a single call, so no share can be capped
  const std::string failure = heed::test::compare_results(
      result, options, heed::test::naive_attention(query, key, value, options),
      fused ? heed::test::fused_rounding(query.dtype(), options, result.isa) : heed::test::Rounding{}, tally);
  if (failure.empty()) return;
  std::fprintf(stderr, "%s\n", failure.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CallMaker call(data, size);
  try {
    const bool into = call.into_memory_of_the_caller();
    const heed::TensorView query = call.query();
    const heed::TensorView key = call.key();
    const heed::TensorView value = call.value();
    const heed::AttentionOptions options = call.options();
    if (into) {
      (void)heed::attention_into(query, key, value, options, call.outputs());
    } else {
      const heed::AttentionResult result = heed::attention(query, key, value, options);
      check_result(query, value, result);
      check_numbers(query, key, value, options, result);
    }
    if (call.wants_gradients())
      (void)heed::attention_backward_into(call.backward_inputs(query, key, value), options, call.gradients());
  } catch (const heed::Error& error) {
    require(error.code() == heed::ErrorCode::invalid_argument ||
            error.code() == heed::ErrorCode::out_of_memory);
  }
  return 0;
}
