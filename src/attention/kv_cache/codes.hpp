// How numbers become codes of a few bits, and codes numbers (docs/kv_cache.md has the formulas).
#pragma once

#include <cstdint>
#include <span>

#include "attention/kv_cache/cache_rows.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// What codes of a group are multiplied by, and what is added: bf16.
struct CodeScale {
  std::uint16_t scale = 0, offset = 0;
};

/// The scale that numbers between `low` and `high` (which may be 0 and 0) need.
CodeScale scale_for(RowFormat format, float low, float high);

/// The code nearest to x.
std::uint8_t encode(RowFormat format, CodeScale scale, float x);
/// scale * code + offset, rounded once.
float decode(RowFormat format, CodeScale scale, std::uint8_t code);

/// Code i of a row: two share a byte in int4.
std::uint8_t code_at(RowFormat format, const std::uint8_t* row, std::int64_t i);
void set_code(RowFormat format, std::uint8_t* row, std::int64_t i, std::uint8_t code);

/// Bytes of n codes; n is even in int4.
constexpr std::int64_t code_bytes(RowFormat format, std::int64_t n) {
  return format == RowFormat::int4 ? n / 2 : n;
}

/// x = x H / sqrt(n) by blocks of n, the largest power of two that divides its size: H_2n = [H_n, H_n; H_n,
/// -H_n] (Sylvester).
void rotate(std::span<float> x);

}  // namespace heed::detail
