// ggml's block formats of weights: a scale, codes of 32 or 256 numbers, and for some formats least values.
//
// A block is read sixteen numbers at a time: number = scale code, plus an offset if the format has least
// values. A group of numbers shares a scale and an offset. Each format is a struct with
//
//   kValues, kBytes   numbers and bytes of a block
//   kGroup            numbers of a group, 16 or 32
//   kOffsets          whether there are offsets
//   kLess             subtracted from each stored code: number = scale (code - kLess)
//   kBias             code + kBias is an unsigned byte
//   scale(group), offset(group), bytes(part)   of one block; a part has sixteen codes
//   codes(part)       the same codes as floats, if there is a faster way than floats_of(bytes(part))
#pragma once

#include "attention/kernels/shared/arguments.hpp"

namespace heed::detail::HEED_ISA {

using Bytes = const std::uint8_t*;
using Sixteen = SixteenBytes;

HEED_INLINE Sixteen sixteen_at(Bytes from) {
  Sixteen made;
  __builtin_memcpy(&made, from, sizeof made);
  return made;
}
// Sixteen codes as floats.
struct SixteenFloats {
  Vf vectors[16 / kLanes];
};
HEED_INLINE SixteenFloats floats_of(Sixteen codes) {
  SixteenFloats made;
  widen_int8(codes, made.vectors);
  return made;
}
HEED_INLINE SixteenFloats signed_bytes_at(Bytes from) {
  SixteenFloats made;
#pragma GCC unroll 4
  for (int i = 0; i < 16 / kLanes; ++i) made.vectors[i] = load_int8(from + i * kLanes);
  return made;
}
// The low or the high halves of sixteen bytes.
HEED_INLINE SixteenFloats halves_at(Bytes from, bool high) {
  SixteenFloats made;
#pragma GCC unroll 4
  for (int i = 0; i < 16 / kLanes; ++i)
    made.vectors[i] = high ? load_high_halves(from + i * kLanes) : load_low_halves(from + i * kLanes);
  return made;
}
HEED_INLINE Vf scaled(Vf scale, int factor) { return mul(scale, splat(static_cast<float>(factor))); }
HEED_INLINE Vf negated(Vf a) { return mul(a, splat(-1.0f)); }

// The low halves of sixteen bytes, then the high ones.
HEED_INLINE Sixteen halves(Bytes from, int part) {
  return part == 0 ? sixteen_at(from) & 15 : sixteen_at(from) >> 4;
}

// 16 times each of the 16 bits of two bytes, the lowest first.
HEED_INLINE Sixteen fifth_bits(Bytes from) {
#if defined(HEED_BYTE_DOTS)
  std::uint16_t mask = 0;
  __builtin_memcpy(&mask, from, sizeof mask);
  return (Sixteen)_mm_maskz_set1_epi8(mask, 16);
#else
  const Sixteen each = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const Sixteen of_byte = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  Sixteen two = {};
  __builtin_memcpy(&two, from, 2);
  return static_cast<Sixteen>((look_up(two, of_byte) & each) == each) & 16;
#endif
}

// A scale in f16, and, if kLeast, a least value in f16.
template <int kSize, bool kLeast>
struct SmallBlock {
  static constexpr int kValues = 32, kBytes = kSize, kGroup = 32;
  static constexpr bool kOffsets = kLeast;
  static constexpr int kLess = 0, kBias = 0;
  Bytes block;
  HEED_INLINE Vf scale(int /*group*/) const { return splat_f16(block); }
  HEED_INLINE Vf offset(int /*group*/) const { return splat_f16(block + 2); }
  /// The scale and the offset are the first two of four f16.
  HEED_INLINE Bytes head() const { return block; }
};

struct Q4_0 : SmallBlock<18, false> {
  static constexpr int kLess = 8;
  HEED_INLINE Sixteen bytes(int part) const { return halves(block + 2, part); }
  HEED_INLINE SixteenFloats codes(int part) const { return halves_at(block + 2, part == 1); }
};
struct Q4_1 : SmallBlock<20, true> {
  HEED_INLINE Sixteen bytes(int part) const { return halves(block + 4, part); }
  HEED_INLINE SixteenFloats codes(int part) const { return halves_at(block + 4, part == 1); }
};
// Before the halves, 4 bytes have the fifth bits.
struct Q5_0 : SmallBlock<22, false> {
  static constexpr int kLess = 16;
  HEED_INLINE Sixteen bytes(int part) const {
    return halves(block + 6, part) | fifth_bits(block + 2 + 2 * part);
  }
};
struct Q5_1 : SmallBlock<24, true> {
  HEED_INLINE Sixteen bytes(int part) const {
    return halves(block + 8, part) | fifth_bits(block + 4 + 2 * part);
  }
};
struct Q8_0 : SmallBlock<34, false> {
  static constexpr int kBias = 128;
  HEED_INLINE Sixteen bytes(int part) const { return sixteen_at(block + 2 + 16 * part); }
  HEED_INLINE SixteenFloats codes(int part) const { return signed_bytes_at(block + 2 + 16 * part); }
};

// Sixteen numbers that are not evenly spaced.
HEED_INLINE Sixteen nonlinear(Sixteen halves_of_bytes) {
  const Sixteen table = {129, 152, 173, 191, 207, 221, 234, 246,
                         1,   13,  25,  38,  53,  69,  89,  113};  // -127 to 113
  return look_up(table, halves_of_bytes);
}
struct Iq4Nl : SmallBlock<18, false> {
  static constexpr int kBias = 128;
  HEED_INLINE Sixteen bytes(int part) const { return nonlinear(halves(block + 2, part)); }
};

// A power of two, and codes of E2M1. The codes here are twice the numbers, so the scale is 2^(e - 128). The
// two least exponents give denormal numbers.
struct Mxfp4 {
  static constexpr int kValues = 32, kBytes = 17, kGroup = 32;
  static constexpr bool kOffsets = false;
  static constexpr int kLess = 0, kBias = 12;
  Bytes block;
  HEED_INLINE Vf scale(int /*group*/) const {
    const std::uint32_t e = block[0];
    return splat(float_of_bits(e < 2 ? std::uint32_t{0x200000} << e : (e - 1) << 23));
  }
  HEED_INLINE Sixteen bytes(int part) const {
    const Sixteen table = {0, 1,   2,   3,   4,   6,   8,   12,
                           0, 255, 254, 253, 252, 250, 248, 244};  // 0 to 12, and -0 to -12
    return look_up(table, halves(block + 1, part));
  }
};

// Blocks of 256 numbers.
template <int kSize, int kNumbers, bool kLeast>
struct LargeBlock {
  static constexpr int kValues = 256, kBytes = kSize, kGroup = kNumbers;
  static constexpr bool kOffsets = kLeast;
  static constexpr int kLess = 0, kBias = 0;
  Bytes block;
};

// Codes of 2 bits in 64 bytes: the bits at one shift of 32 bytes are a run of 32 numbers, so 32 bytes hold
// four runs.
HEED_INLINE Sixteen quarters(Bytes from, int part) {
  const int run = part / 2;
  return sixteen_at(from + run / 4 * 32 + part % 2 * 16) >> run % 4 * 2 & 3;
}

// 16 bytes of scales (low halves) and least values (high halves), 64 of codes, d and m in f16.
struct Q2_K : LargeBlock<84, 16, true> {
  HEED_INLINE Vf scale(int group) const { return scaled(splat_f16(block + 80), block[group] & 15); }
  HEED_INLINE Vf offset(int group) const { return negated(scaled(splat_f16(block + 82), block[group] >> 4)); }
  HEED_INLINE Sixteen bytes(int part) const { return quarters(block + 16, part); }
};

// 32 bytes of third bits, 64 of low quarters, 12 of 6-bit scales, d in f16. Where the third bit is not set, 4
// is subtracted. The low halves of the scales are 8 bytes of halves, the low ones first; their high quarters
// are 4 bytes.
struct Q3_K : LargeBlock<110, 16, false> {
  static constexpr int kBias = 4;
  HEED_INLINE Vf scale(int group) const {
    const Bytes packed = block + 96;
    const int low = packed[group % 8] >> group / 8 * 4 & 15,
              high = packed[8 + group % 4] >> group / 4 * 2 & 3;
    return scaled(splat_f16(block + 108), (low | high << 4) - 32);
  }
  HEED_INLINE Sixteen bytes(int part) const {
    const Sixteen third = (sixteen_at(block + part % 2 * 16) >> part / 2 & 1) << 2;
    return quarters(block + 32, part) + third - 4;
  }
};

// d and m in f16, then 12 bytes with a 6-bit scale and a 6-bit least value of each of 8 groups. For the first
// four groups they are the low bits of bytes 0-3 and 4-7. For the others the low four bits are the halves of
// bytes 8-11, and the high two bits are the remaining bits of bytes 0-3 and 4-7.
template <int kSize>
struct PartsBlock : LargeBlock<kSize, 32, true> {
  using LargeBlock<kSize, 32, true>::block;
  HEED_INLINE Vf scale(int group) const {
    const Bytes packed = block + 4;
    return scaled(splat_f16(block),
                  group < 4 ? packed[group] & 63 : (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4);
  }
  HEED_INLINE Vf offset(int group) const {
    const Bytes packed = block + 4;
    return negated(scaled(splat_f16(block + 2), group < 4
                                                    ? packed[group + 4] & 63
                                                    : packed[group + 4] >> 4 | (packed[group] >> 6) << 4));
  }
  // Each 32 bytes hold two groups, the low halves the first one.
  HEED_INLINE static Bytes bytes_of(Bytes from, int part) { return from + part / 4 * 32 + part % 2 * 16; }
};

// 128 bytes of codes behind the scales.
struct Q4_K : PartsBlock<144> {
  HEED_INLINE Sixteen bytes(int part) const { return halves(bytes_of(block + 16, part), part / 2 % 2); }
  HEED_INLINE SixteenFloats codes(int part) const {
    return halves_at(bytes_of(block + 16, part), part / 2 % 2 == 1);
  }
};
// The same with 32 bytes of fifth bits before the codes: bit g of byte i belongs to number i of group g.
struct Q5_K : PartsBlock<176> {
  HEED_INLINE Sixteen bytes(int part) const {
    const Sixteen fifth = sixteen_at(block + 16 + part % 2 * 16) >> part / 2 & 1;
    return halves(bytes_of(block + 48, part), part / 2 % 2) | fifth << 4;
  }
};

// 128 bytes of low halves, 64 of high quarters, 16 scales of 8 bits, and d in f16; the codes have 6 bits,
// less 32. Each half of the block, 128 numbers, is four runs of 32. The low halves of runs 0 and 1 are the
// low bits of 64 bytes, those of runs 2 and 3 the high bits.
struct Q6_K : LargeBlock<210, 16, false> {
  static constexpr int kBias = 32;
  HEED_INLINE Vf scale(int group) const {
    return scaled(splat_f16(block + 208), static_cast<std::int8_t>(block[192 + group]));
  }
  HEED_INLINE Sixteen bytes(int part) const {
    const int run = part / 2;
    const Sixteen low =
        sixteen_at(block + run / 4 * 64 + run % 2 * 32 + part % 2 * 16) >> run % 4 / 2 * 4 & 15;
    return (low | quarters(block + 128, part) << 4) - 32;
  }
};

// d in f16, the high quarters of eight 6-bit scales in two bytes, their low halves in four, 128 bytes of
// codes.
struct Iq4Xs : LargeBlock<136, 32, false> {
  static constexpr int kBias = 128;
  HEED_INLINE Vf scale(int group) const {
    const int low = block[4 + group / 2] >> group % 2 * 4 & 15,
              high = block[2 + group / 4] >> group % 4 * 2 & 3;
    return scaled(splat_f16(block), (low | high << 4) - 32);
  }
  HEED_INLINE Sixteen bytes(int part) const { return nonlinear(halves(block + 8 + part / 2 * 16, part % 2)); }
};

template <class Block>
HEED_INLINE SixteenFloats codes_of(const Block& block, int part) {
  if constexpr (requires { block.codes(part); })
    return block.codes(part);
  else
    return floats_of(block.bytes(part));
}

/// `count` numbers, a multiple of the block's.
template <class Block>
inline void read_blocks(const void* from, std::int64_t count, float* to) {
  Block at{static_cast<Bytes>(from)};
  for (; count > 0; count -= Block::kValues, at.block += Block::kBytes)
#pragma GCC unroll 1
    for (int part = 0; part < Block::kValues / 16; ++part, to += 16) {
      const int group = part * 16 / Block::kGroup;
      const Vf scale = at.scale(group);
      const SixteenFloats codes = codes_of(at, part);
#pragma GCC unroll 4
      for (int i = 0; i < 16 / kLanes; ++i) {
        const Vf code = codes.vectors[i];
        Vf number = mul(scale, Block::kLess == 0 ? code : sub(code, splat(Block::kLess)));
        if constexpr (Block::kOffsets) number = add(number, at.offset(group));
        store(to + i * kLanes, number);
      }
    }
}

/// y[output] += sum_i x[i] w[output][i] over `depth` numbers. Codes are multiplied and summed before their
/// group's scale. `sums` has the sum of each group of x; only formats with offsets read it.
template <class Block>
inline void add_block_dots(const float* x, const float* sums, const void* rows, std::int64_t depth,
                           std::int64_t outputs, float* y) {
  constexpr int kGroups = Block::kValues / Block::kGroup, kParts = Block::kGroup / 16;
  constexpr bool kSummed = Block::kOffsets || Block::kLess != 0;
  Block at{static_cast<Bytes>(rows)};
  for (std::int64_t output = 0; output < outputs; ++output) {
    Vf sum = zero();
    const float* x_at = x;
    const float* sums_at = sums;
    for (std::int64_t left = depth; left > 0; left -= Block::kValues, at.block += Block::kBytes)
#pragma GCC unroll 16
      for (int group = 0; group < kGroups; ++group, x_at += Block::kGroup) {
        const Vf x_sum = kSummed ? splat(*sums_at++) : zero();
        Vf part_sum = Block::kLess == 0 ? zero() : x_sum;
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part) {
          const SixteenFloats codes = codes_of(at, group * kParts + part);
#pragma GCC unroll 4
          for (int i = 0; i < 16 / kLanes; ++i)
            part_sum = mul_add(codes.vectors[i], load(x_at + part * 16 + i * kLanes), part_sum);
        }
        sum = mul_add(part_sum, at.scale(group), sum);
        if constexpr (Block::kOffsets) sum = mul_add(at.offset(group), x_sum, sum);
      }
    y[output] += reduce_add(sum);
  }
}

#if defined(HEED_EIGHT)
/// The same for x in signed bytes. A run of 32 numbers has eight sums of four products of bytes, which are
/// exact. (Two rows at a time read memory at a third of the speed.)
template <class Block>
inline void add_coded_dots(const cpu::CodedRow& x, const void* rows, std::int64_t depth, std::int64_t outputs,
                           float* y) {
  constexpr int kRuns = Block::kValues / 32, kGroups = 32 / Block::kGroup;
  Block at{static_cast<Bytes>(rows)};
  for (std::int64_t output = 0; output < outputs; ++output) {
    Eight sum = splat_eight(0.0f), offset_sum = sum;
    FirstFour head_sum = first_four(sum);
    std::int64_t at_run = 0;
    for (std::int64_t left = depth; left > 0; left -= Block::kValues, at.block += Block::kBytes)
#pragma GCC unroll 8
      for (int run = 0; run < kRuns; ++run, ++at_run) {
        const Eight dots = dot_bytes<Block::kBias == 128>(at.bytes(2 * run) + std::uint8_t{Block::kBias},
                                                          at.bytes(2 * run + 1) + std::uint8_t{Block::kBias},
                                                          x.codes + 32 * at_run, x.start + 8 * at_run);
        const Eight scaled_dots = mul_eight(dots, splat_eight(x.scales[at_run]));
        if constexpr (requires { at.head(); }) {
          const FirstFour head = four_f16(at.head());
          sum = mul_add_eight(scaled_dots, splat_first(head), sum);
          if constexpr (Block::kOffsets) head_sum = mul_add_four(head, x.run_sums[at_run], head_sum);
          continue;
        }
        const auto of_groups = [&](auto number) __attribute__((always_inline)) {
          const Eight low = first_eight(number(run * kGroups));
          return kGroups == 1 ? low : join_halves(low, first_eight(number(run * kGroups + 1)));
        };
        sum = mul_add_eight(
            scaled_dots, of_groups([&](int group) __attribute__((always_inline)) { return at.scale(group); }),
            sum);
        if constexpr (Block::kOffsets)
          offset_sum = mul_add_eight(
              load_eight(x.sums + 8 * at_run),
              of_groups([&](int group) __attribute__((always_inline)) { return at.offset(group); }),
              offset_sum);
      }
    y[output] += sum_of_eight(sum);
    if constexpr (Block::kOffsets) y[output] += sum_of_eight(offset_sum) + second_of(head_sum);
  }
}
#else
inline constexpr bool kNeedsByteDots = false;
template <class Block>
constexpr std::nullptr_t add_coded_dots = nullptr;
#endif

template <class Block>
constexpr cpu::BlockProducts products_of() {
  constexpr bool kSummed = Block::kOffsets || Block::kLess != 0;
  return {kSummed ? Block::kGroup : 0, (Block::kOffsets ? 1.0f : -Block::kLess) / kLanes,
          read_blocks<Block>,          add_block_dots<Block>,
          add_coded_dots<Block>,       Block::kLess + Block::kBias};
}

/// By cpu::BlockKind.
inline constexpr cpu::BlockProducts kBlockProducts[cpu::kBlockKinds] = {
    products_of<Q4_0>(),  products_of<Q4_1>(),  products_of<Q5_0>(), products_of<Q5_1>(), products_of<Q8_0>(),
    products_of<Iq4Nl>(), products_of<Mxfp4>(), products_of<Q2_K>(), products_of<Q3_K>(), products_of<Q4_K>(),
    products_of<Q5_K>(),  products_of<Q6_K>(),  products_of<Iq4Xs>()};

}  // namespace heed::detail::HEED_ISA
