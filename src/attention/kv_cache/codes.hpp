// Conversion between numbers and codes of a few bits (formulas: docs/kv_cache.md).
#pragma once

#include <cstdint>
#include <span>

#include "attention/problem/cache_rows.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// The factor and the offset of a group's codes, in bf16.
struct CodeScale {
  std::uint16_t scale = 0, offset = 0;
};

/// Returns the scale that codes numbers from `low` to `high`; both may be 0.
CodeScale scale_for(RowFormat format, float low, float high);

std::uint8_t encode(RowFormat format, CodeScale scale, float x);
/// Returns scale * code + offset, rounded once.
float decode(RowFormat format, CodeScale scale, std::uint8_t code);

/// Reads code i of a row; two int4 codes share a byte.
std::uint8_t code_at(RowFormat format, const std::uint8_t* row, std::int64_t i);
void set_code(RowFormat format, std::uint8_t* row, std::int64_t i, std::uint8_t code);

/// Bytes of n codes; int4 needs an even n.
constexpr std::int64_t code_bytes(RowFormat format, std::int64_t n) {
  return format == RowFormat::int4 ? n / 2 : n;
}

/// x = x H / sqrt(n) in blocks of n, the largest power of two that divides its size. Sylvester's
/// construction: H_2n = [H_n, H_n; H_n, -H_n].
void rotate(std::span<float> x);

}  // namespace heed::detail
