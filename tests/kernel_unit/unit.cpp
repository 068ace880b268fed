// The functions of one kernel unit, on arrays. It is compiled once for each instruction set. HEED_ISA is a
// separate namespace, so that no function here can replace one of the library's unit. HEED_SIMD is the header
// of vector types.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
//
#include HEED_SIMD
//
#ifdef HEED_TILES
#include HEED_TILES
#endif
#ifdef HEED_BITS
#include HEED_BITS
#endif
//
#include "attention/kernels/softmax/score_modifiers.hpp"
#include "attention/kernels/softmax/tiles.hpp"
#include "kernel_unit/units.hpp"

namespace heed::test {
namespace {

using namespace detail::HEED_ISA;  // NOLINT(google-build-using-namespace)

void exp2_bounded_of(const float* x, std::size_t count, float shift, float* to) {
  for (std::size_t i = 0; i < count; i += kLanes)
    store(to + i, exp2_bounded(load(x + i), splat(kRound - shift)));
}

void exp2_flushed_of(const float* x, std::size_t count, float shift, float* to) {
  for (std::size_t i = 0; i < count; i += kLanes)
    store(to + i, exp2_flushed(load(x + i), splat(kRound - shift), splat(shift + kSmallestExponent)));
}

void tanh_of_all(const float* x, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; i += kLanes) store(to + i, tanh_of(load(x + i)));
}

std::uint64_t nonzero_words(const std::uint64_t* words) { return bits_of_nonzero(words); }

std::uint32_t greater_lanes(const float* x, const float* y) { return bits_of(greater(load(x), load(y))); }

#ifdef HEED_BITS
std::vector<TakenBit> take_all_row_bits(const std::uint64_t* words, const float* rows, std::int32_t stride) {
  RowBits<6> bits(reinterpret_cast<const std::uint32_t*>(words));
  std::vector<TakenBit> taken;
  while (bits.take()) {
    alignas(64) float numbers[kLanes], places[kLanes];
    store(numbers, bits.gather(rows, stride, kLanes, splat(-1)));
    store(places, bits.places(0));
    for (int r = 0; r < kLanes; ++r) {
      taken.push_back({0, numbers[r]});
      std::memcpy(&taken.back().place, &places[r], sizeof places[r]);
    }
  }
  return taken;
}
constexpr auto kTakeRowBits = take_all_row_bits;
#else
constexpr decltype(VectorMath::take_row_bits) kTakeRowBits = nullptr;
#endif

// The header of the tests' memory of states.
struct StateHeader {
  std::int64_t rows, value_columns, top_k;
};

constexpr std::size_t kHeaderBytes = 64;

SoftmaxState states_in(const SoftmaxStates::States& memory) {
  StateHeader header;
  std::memcpy(&header, memory.data(), sizeof header);
  Memory pieces(const_cast<std::byte*>(memory.data()) + kHeaderBytes);
  return lay_out_state({header.rows, header.value_columns, header.top_k, true, true, true, true}, pieces);
}

std::int64_t rows_in(const SoftmaxStates::States& memory) {
  StateHeader header;
  std::memcpy(&header, memory.data(), sizeof header);
  return header.rows;
}

SoftmaxStates::States empty_states(std::int64_t rows, std::int64_t value_columns, std::int64_t top_k) {
  const StateHeader header = {rows, value_columns, top_k};
  Memory count(nullptr);
  lay_out_state({rows, value_columns, top_k, true, true, true, true}, count);
  SoftmaxStates::States memory(kHeaderBytes + count.bytes());
  std::memcpy(memory.data(), &header, sizeof header);
  const SoftmaxState s = states_in(memory);
  clear(s, rows, rows, true);
  for (std::int64_t r = 0; r < rows; ++r) s.left_out[r] = 0;
  return memory;
}

// Adds a key to one lane, the first of the row's sums.
void add_key(SoftmaxStates::States& memory, std::int64_t row, float score, const float* value,
             std::int32_t key) {
  const SoftmaxState s = states_in(memory);
  if (score > s.threshold[row]) {
    const float shift = std::nearbyint(score);
    if (is_empty(s, row))
      s.shift[row] = shift;
    else
      rescale(s, row, shift);
    s.threshold[row] = shift + kHeadroom;
  }
  alignas(64) float weights[kLanes];
  store(weights,
        exp2_flushed(splat(score), splat(kRound - s.shift[row]), splat(s.shift[row] + kSmallestExponent)));
  const float weight = weights[0];
  const std::int64_t lane = row * kLanes;
  s.sum[lane] += weight;
  s.rounded[lane] += weight;
  s.moment[lane] += weight * (score - s.shift[row]);
  s.distance[lane] += weight * static_cast<float>(key);
  for (std::int64_t i = 0; i < kLanes; ++i) s.max[lane + i] = std::max(s.max[lane + i], score);
  for (std::int64_t c = 0; c < s.value_columns; ++c) s.output[row * s.value_columns + c] += weight * value[c];
  if (!(weight > kAnyWeight)) return;
  // Entries for each of the kLanes rows of the block; only this row has one.
  alignas(64) float entry[kLanes];
  alignas(64) std::int32_t entry_key[kLanes];
  std::vector<float> moved(static_cast<std::size_t>(kLanes) + 16);
  for (int i = 0; i < kLanes; ++i) {
    entry[i] = i == row % kLanes ? weight : kNoWeight;
    entry_key[i] = key;
  }
  const std::int64_t block = row / kLanes * kLanes;
  insert(lists_of(s, block), s.levels, {entry, entry_key}, moved.data(), 1);
}

void rescale_state(SoftmaxStates::States& memory, std::int64_t row, float shift) {
  rescale(states_in(memory), row, shift);
}

void leave_out_state(SoftmaxStates::States& memory, std::int64_t row) { states_in(memory).left_out[row] = 1; }

void merge_states(SoftmaxStates::States& into, SoftmaxStates::States& from) {
  const SoftmaxState a = states_in(into);
  const SoftmaxState b = states_in(from);
  for (std::int64_t row = 0; row < rows_in(into); ++row) merge_row(a, b, row);
  constexpr std::int64_t kAtATime = 3;  // fewer entries than the lists have: merges in several steps
  std::vector<float> moved(kAtATime * kLanes);
  merge_lists(a, b, moved.data(), kAtATime);
}

RowState read_state(const SoftmaxStates::States& memory, std::int64_t row) {
  const SoftmaxState s = states_in(memory);
  const auto lanes = [&](const float* x) { return reduce_add(load(x + row * kLanes)); };
  RowState state;
  state.empty = is_empty(s, row);
  state.left_out = s.left_out[row] != 0;
  state.shift = s.shift[row];
  state.sum = lanes(s.sum);
  state.moment = lanes(s.moment);
  state.max = reduce_max(load(s.max + row * kLanes));
  state.rounded = lanes(s.rounded);
  state.distance = lanes(s.distance);
  state.output.assign(s.output + row * s.value_columns, s.output + (row + 1) * s.value_columns);
  const CandidateColumns list = lists_of(s, row / kLanes * kLanes);
  for (std::int64_t i = 0; i < s.top_k; ++i) {
    state.list_weights.push_back(list.weight[i * kLanes + row % kLanes]);
    state.list_keys.push_back(list.key[i * kLanes + row % kLanes]);
    if (state.list_weights.back() < 0) state.list_keys.back() = -1;
  }
  return state;
}

HeadRows head_rows(const TensorView& view) {
  return rows_of({view.data(), view.dtype(), {0, 0, view.strides()[0], view.strides()[1]}}, 0, 0, 0);
}

std::vector<float> packed_keys(const TensorView& keys, std::int64_t first, std::int64_t count, float scale) {
  const std::int64_t depth = keys.shape()[1];
  const std::int64_t padded = round_up(depth, kLanes);
  std::vector<float> panels(static_cast<std::size_t>(round_up(count, kPanel) * depth));
  std::vector<float> scratch(static_cast<std::size_t>(kLanes * padded));
  pack_keys({head_rows(keys), first, count, depth}, scale, panels.data(), scratch.data(), padded);
  std::vector<float> rows;
  for (std::int64_t k = 0; k < count; ++k)
    for (std::int64_t d = 0; d < depth; ++d)
      rows.push_back(panels[static_cast<std::size_t>((k / kPanel * depth + d) * kPanel + k % kPanel)]);
  return rows;
}

std::vector<float> packed_values(const TensorView& values, std::int64_t first, std::int64_t count) {
  const std::int64_t width = values.shape()[1];
  const std::int64_t vectors = (width + kLanes - 1) / kLanes;
  std::vector<float> panels(static_cast<std::size_t>(count * vectors * kLanes));
  pack_values({head_rows(values), first, count, width}, panels.data(), {});
  std::vector<float> rows;
  for (std::int64_t k = 0; k < count; ++k)
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t panel = c / kLanes / kValueVectors * kValueVectors;  // first vector of the panel
      const std::int64_t here = smaller(kValueVectors, vectors - panel);
      rows.push_back(
          panels[static_cast<std::size_t>((panel * count + k * here) * kLanes + c - panel * kLanes)]);
    }
  return rows;
}

// Computes c [16][16] += a x b in the unit's tiles, if they are registers.
template <class Tiles>
constexpr decltype(KernelUnit::multiply_tiles) product_of_tiles() {
  if constexpr (kHasMatrixTiles) {
    if constexpr (Tiles::kHasRegisters)
      return [](const std::uint16_t* a, const std::uint16_t* b, float* c) {
        const Tiles tiles;
        Tiles::template load<0>(c, 16);
        Tiles::template load<6>(reinterpret_cast<const float*>(a), 16);
        Tiles::template load<7>(reinterpret_cast<const float*>(b), 16);
        Tiles::template multiply_add<0, 6, 7>();
        Tiles::template store<0>(c, 16);
      };
  }
  return nullptr;
}

}  // namespace

KernelUnit HEED_UNIT() {
  return {{exp2_bounded_of, exp2_flushed_of, tanh_of_all, kGainExact, nonzero_words, greater_lanes, kLanes,
           kTakeRowBits},
          {empty_states, add_key, leave_out_state, rescale_state, merge_states, read_state},
          packed_keys,
          packed_values,
          product_of_tiles<MatrixTiles>()};
}

}  // namespace heed::test
