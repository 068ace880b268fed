#include "model/gguf/block_formats.hpp"

#include <array>
#include <bit>

#include "heed/dtype.hpp"

namespace heed::detail {
namespace {

using Bytes = const std::uint8_t*;

constexpr std::int64_t kSmall = 32, kLarge = 256;  // numbers in a block
constexpr int kRun = 32;                           // numbers that share a shift in a large block
constexpr std::array<float, 16> kNonlinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::array<float, 16> kTimesTwo = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};  // of E2M1

unsigned word_at(Bytes from) { return static_cast<unsigned>(from[0] | from[1] << 8); }
float half_at(Bytes from) { return to_float(Float16{static_cast<std::uint16_t>(word_at(from))}); }
float as_float(int code) { return static_cast<float>(code); }

// Calls read(block, to) for each block.
template <std::int64_t kValues, std::int64_t kBytes, class Read>
void each_block(const void* from, std::int64_t count, float* to, Read read) {
  const auto* block = static_cast<Bytes>(from);
  for (; count > 0; count -= kValues, block += kBytes, to += kValues) read(block, to);
}

// 16 bytes of halves: the low ones are the first 16 numbers.
template <class Decode>
void read_halves(Bytes codes, float* to, Decode decode) {
  for (int i = 0; i < 16; ++i) {
    to[i] = decode(codes[i] & 15, i);
    to[i + 16] = decode(codes[i] >> 4, i + 16);
  }
}

void read_q4_0(const void* from, std::int64_t count, float* to) {
  each_block<kSmall, 18>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block);
    read_halves(block + 2, out, [=](int code, int) { return d * as_float(code - 8); });
  });
}

void read_q4_1(const void* from, std::int64_t count, float* to) {
  each_block<kSmall, 20>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block), m = half_at(block + 2);
    read_halves(block + 4, out, [=](int code, int) { return d * as_float(code) + m; });
  });
}

// The fifth bits of all codes are one 32-bit number.
int fifth_bit(Bytes bits, int i) { return (bits[i / 8] >> i % 8 & 1) << 4; }

void read_q5_0(const void* from, std::int64_t count, float* to) {
  each_block<kSmall, 22>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block);
    read_halves(block + 6, out,
                [=](int code, int i) { return d * as_float((code | fifth_bit(block + 2, i)) - 16); });
  });
}

void read_q5_1(const void* from, std::int64_t count, float* to) {
  each_block<kSmall, 24>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block), m = half_at(block + 2);
    read_halves(block + 8, out,
                [=](int code, int i) { return d * as_float(code | fifth_bit(block + 4, i)) + m; });
  });
}

void read_q8_0(const void* from, std::int64_t count, float* to) {
  each_block<kSmall, 34>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block);
    for (std::int64_t i = 0; i < kSmall; ++i) out[i] = d * as_float(static_cast<std::int8_t>(block[2 + i]));
  });
}

void read_iq4_nl(const void* from, std::int64_t count, float* to) {
  each_block<kSmall, 18>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block);
    read_halves(block + 2, out,
                [=](int code, int) { return d * kNonlinear[static_cast<std::size_t>(code)]; });
  });
}

// 2^(e - 128), half of the scale 2^(e - 127), since the table has twice the numbers. The two least exponents
// give denormal numbers.
float half_of_power(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? std::uint32_t{0x200000} << e : static_cast<std::uint32_t>(e - 1) << 23);
}

void read_mxfp4(const void* from, std::int64_t count, float* to) {
  each_block<kSmall, 17>(from, count, to, [](Bytes block, float* out) {
    const float d = half_of_power(block[0]);
    read_halves(block + 1, out, [=](int code, int) { return d * kTimesTwo[static_cast<std::size_t>(code)]; });
  });
}

// Codes of 2 bits in 64 bytes: the bits at `shift` of 32 bytes are a run of 32 numbers, and 32 bytes hold
// four runs.
struct QuarterRun {
  Bytes bytes;
  int shift;
};
QuarterRun quarter_run(Bytes codes, int run) { return {codes + run / 4 * kRun, run % 4 * 2}; }

// 16 bytes of scales (low halves) and least values (high halves), 64 of codes, d and m in f16.
void read_q2_k(const void* from, std::int64_t count, float* to) {
  each_block<kLarge, 84>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block + 80), m = half_at(block + 82);
    for (int i = 0; i < kLarge; ++i) {
      const QuarterRun run = quarter_run(block + 16, i / kRun);
      const int scale = block[i / 16];
      out[i] = d * as_float(scale & 15) * as_float(run.bytes[i % kRun] >> run.shift & 3) -
               m * as_float(scale >> 4);
    }
  });
}

// 32 bytes of third bits, 64 of low quarters, 12 of 6-bit scales, d in f16. Where the third bit is not set, 4
// is subtracted. The low halves of the scales are 8 bytes of halves, the low ones first; their high quarters
// are 4 bytes.
void read_q3_k(const void* from, std::int64_t count, float* to) {
  each_block<kLarge, 110>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block + 108);
    const Bytes scales = block + 96;
    for (int i = 0; i < kLarge; ++i) {
      const QuarterRun run = quarter_run(block + 32, i / kRun);
      const int part = i / 16, low = scales[part % 8] >> part / 8 * 4 & 15,
                high = scales[8 + part % 4] >> part / 4 * 2 & 3;
      const int code = (run.bytes[i % kRun] >> run.shift & 3) - (block[i % kRun] >> i / kRun & 1 ? 0 : 4);
      out[i] = d * as_float((low | high << 4) - 32) * as_float(code);
    }
  });
}

// The 6-bit scale and least value of part `part` of 8. For the first four parts they are the low bits of
// bytes 0-3 and 4-7. For the others the low four bits are the halves of bytes 8-11, and the high two bits are
// the remaining bits of bytes 0-3 and 4-7.
struct PartScales {
  int scale, least;
};
PartScales part_scales(Bytes packed, int part) {
  if (part < 4) return {packed[part] & 63, packed[part + 4] & 63};
  return {(packed[part + 4] & 15) | (packed[part - 4] >> 6) << 4,
          (packed[part + 4] >> 4) | (packed[part] >> 6) << 4};
}

// Eight parts of 32 numbers. Each 32 bytes of codes hold two parts, the low halves the first one. code(part,
// i, half) is the whole code.
template <class Code>
void read_parts(Bytes block, Bytes codes, float* to, Code code) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int part = 0; part < 8; ++part, to += kRun) {
    const PartScales own = part_scales(block + 4, part);
    const float factor = d * as_float(own.scale), offset = m * as_float(own.least);
    const Bytes bytes = codes + part / 2 * kRun;
    const int shift = part % 2 * 4;
    for (int i = 0; i < kRun; ++i) to[i] = factor * as_float(code(part, i, bytes[i] >> shift & 15)) - offset;
  }
}

// d and m in f16, 12 bytes of scales, 128 of codes.
void read_q4_k(const void* from, std::int64_t count, float* to) {
  each_block<kLarge, 144>(from, count, to, [](Bytes block, float* out) {
    read_parts(block, block + 16, out, [](int, int, int half) { return half; });
  });
}

// The same with 32 bytes of fifth bits before the codes: bit p of byte i belongs to number i of part p.
void read_q5_k(const void* from, std::int64_t count, float* to) {
  each_block<kLarge, 176>(from, count, to, [](Bytes block, float* out) {
    const Bytes fifth = block + 16;
    read_parts(block, block + 48, out,
               [=](int part, int i, int half) { return half | (fifth[i] >> part & 1) << 4; });
  });
}

// 128 bytes of low halves, 64 of high quarters, 16 scales of 8 bits, and d in f16; the codes have 6 bits,
// less 32. Each half of the block, 128 numbers, is four runs of 32. The low halves of runs 0 and 1 are the
// low bits of 64 bytes, those of runs 2 and 3 the high bits.
void read_q6_k(const void* from, std::int64_t count, float* to) {
  each_block<kLarge, 210>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block + 208);
    for (int run = 0; run < 8; ++run, out += kRun) {
      const Bytes low = block + run / 4 * 64 + run % 2 * kRun;
      const QuarterRun high = quarter_run(block + 128, run);
      const int low_shift = run % 4 / 2 * 4;
      for (int i = 0; i < kRun; ++i) {
        const int code = (low[i] >> low_shift & 15) | (high.bytes[i] >> high.shift & 3) << 4;
        out[i] = d * as_float(static_cast<std::int8_t>(block[192 + run * 2 + i / 16])) * as_float(code - 32);
      }
    }
  });
}

// d in f16, the high quarters of eight 6-bit scales in two bytes, their low halves in four, 128 bytes of
// codes.
void read_iq4_xs(const void* from, std::int64_t count, float* to) {
  each_block<kLarge, 136>(from, count, to, [](Bytes block, float* out) {
    const float d = half_at(block);
    for (int part = 0; part < 8; ++part) {
      const int low = block[4 + part / 2] >> part % 2 * 4 & 15,
                high = static_cast<int>(word_at(block + 2) >> 2 * part & 3);
      const float factor = d * as_float((low | high << 4) - 32);
      read_halves(block + 8 + part * 16, out + part * kRun,
                  [=](int code, int) { return factor * kNonlinear[static_cast<std::size_t>(code)]; });
    }
  });
}

}  // namespace

const WeightFormat kStoredQ4_0 = {"Q4_0", kSmall, 18, 1, read_q4_0};
const WeightFormat kStoredQ4_1 = {"Q4_1", kSmall, 20, 1, read_q4_1};
const WeightFormat kStoredQ5_0 = {"Q5_0", kSmall, 22, 1, read_q5_0};
const WeightFormat kStoredQ5_1 = {"Q5_1", kSmall, 24, 1, read_q5_1};
const WeightFormat kStoredQ8_0 = {"Q8_0", kSmall, 34, 1, read_q8_0};
const WeightFormat kStoredIq4Nl = {"IQ4_NL", kSmall, 18, 1, read_iq4_nl};
const WeightFormat kStoredMxfp4 = {"MXFP4", kSmall, 17, 1, read_mxfp4};
const WeightFormat kStoredQ2K = {"Q2_K", kLarge, 84, 1, read_q2_k};
const WeightFormat kStoredQ3K = {"Q3_K", kLarge, 110, 1, read_q3_k};
const WeightFormat kStoredQ4K = {"Q4_K", kLarge, 144, 1, read_q4_k};
const WeightFormat kStoredQ5K = {"Q5_K", kLarge, 176, 1, read_q5_k};
const WeightFormat kStoredQ6K = {"Q6_K", kLarge, 210, 1, read_q6_k};
const WeightFormat kStoredIq4Xs = {"IQ4_XS", kLarge, 136, 1, read_iq4_xs};

}  // namespace heed::detail
