// Random attention calls. Call `index` of a seed is always the same call, whatever kernel it tests.
//
// Memory between and around the elements of a view is NaN (0xff bytes where the dtype has none), so that
// reads outside a view show.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"

namespace heed::test {

/// Families of numbers. Uniform numbers would never change the running maximum of a softmax.
enum class Family { normal, spread, one_hot, negative, ascending, cancelling };
inline constexpr std::array<const char*, 6> kFamilyNames{"normal",   "spread",    "one-hot",
                                                         "negative", "ascending", "cancelling"};

/// The sizes and options from which a call is drawn.
struct CallLimits {
  std::vector<std::int64_t> batches{1, 1, 1, 2, 3, 0};
  std::vector<std::int64_t> kv_heads{1, 1, 2, 3};
  std::vector<std::int64_t> groups{1, 1, 2, 4};  ///< H / Hkv
  std::vector<std::int64_t> lengths{0, 1, 2, 3, 4, 5, 7, 8, 13, 17, 33};
  std::vector<std::int64_t> query_lengths{};  ///< used for queries only, if not empty
  std::vector<std::int64_t> dims{1, 2, 3, 5, 8, 16, 24, 28};
  std::vector<DType> dtypes{DType::f64, DType::f32, DType::f16, DType::bf16};
  std::vector<Family> families{Family::normal,   Family::spread,    Family::one_hot,
                               Family::negative, Family::ascending, Family::cancelling};
  /// If not empty, calls are packed sequences of at least two documents. Their numbers of queries and keys
  /// are drawn from these; `lengths` and `batches` are not used.
  std::vector<std::int64_t> document_queries{}, document_keys{};
  std::int64_t most_documents = 5;
  /// Finite biases as low as the dtype allows, sinks far below the scores, and rows far beyond their keys.
  bool extremes = false;
  bool bare = false;        ///< no masks, score modifiers or dropout
  bool received = false;    ///< requests received masses, and no other result that needs a second pass
  bool poison = true;       ///< every other call holds NaN and infinity where no row may see them
  double contiguous = 0.3;  ///< share of query, key and value tensors that are row-major without gaps
};

struct RandomCall {
  std::uint64_t seed = 0;
  std::uint64_t index = 0;
  Family family = Family::normal;
  std::vector<Tensor> memory;  ///< the memory of the views below
  MutableTensorView query, key, value;
  AttentionOptions options;
};

/// Draws the random numbers of one call, in order.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t index) {
    std::seed_seq sequence{seed & 0xffffffff, seed >> 32, index & 0xffffffff, index >> 32};
    engine_.seed(sequence);
  }
  std::uint64_t word() { return engine_(); }
  /// An integer from `low` to `high`, inclusive.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool chance(double probability) { return uniform() < probability; }
  /// A number from N(0, 1).
  double normal();
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(from.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

/// Calls visit(index) for every index of `shape`, the last axis fastest.
template <class Visit>
void for_each_index(const Dims& shape, Visit visit) {
  if (element_count(shape) == 0) return;
  Dims index = shape;
  for (int axis = 0; axis < shape.size(); ++axis) index[axis] = 0;
  for (;;) {
    visit(std::as_const(index));
    int axis = shape.size() - 1;
    while (axis >= 0 && ++index[axis] == shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

/// Writes one element.
void put(const MutableTensorView& view, const Dims& index, double value);

/// Memory with all bits set: NaN in every floating dtype.
Tensor& poisoned(const Dims& shape, DType dtype, std::vector<Tensor>& memory);

/// A view in memory of its own. Its axes have any order, and may have gaps, run backwards, or repeat (stride
/// 0).
MutableTensorView strided_view(const Dims& shape, DType dtype, Draw& draw, std::vector<Tensor>& memory,
                               bool may_repeat = true, double contiguous = 0.3);

RandomCall random_call(std::uint64_t seed, std::uint64_t index, const CallLimits& limits = {});

/// Whether a view shows some of its memory more than once.
bool repeats(const TensorView& view);

/// Writes NaN or infinity into keys and values where unseen(b, kv_head, j). A view that repeats is left
/// alone, because keys that are seen share its memory.
template <class Unseen>
void poison_keys(RandomCall& call, Unseen unseen) {
  for (const MutableTensorView& view : {call.key, call.value}) {
    if (repeats(view)) continue;
    for_each_index(view.shape(), [&](const Dims& at) {
      const int rank = at.size();
      const std::int64_t column = at[rank - 1];
      if (unseen(rank > 3 ? at[0] : 0, rank > 2 ? at[rank - 3] : 0, at[rank - 2]))
        put(view, at,
            column % 2 == 0 ? std::numeric_limits<double>::quiet_NaN()
                            : std::numeric_limits<double>::infinity());
    });
  }
}

}  // namespace heed::test
