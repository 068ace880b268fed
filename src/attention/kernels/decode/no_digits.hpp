// For units without dot products of bytes. These declarations stand in for the names.
#pragma once

#include "attention/kernels/decode/decode_products.hpp"

namespace heed::detail::HEED_ISA {

template <RowFormat kFormat>
void weights_by_digits(TaskState& state, const DecodeBlock& block, std::int64_t start,
                       const KeyRange& kv_block, float* weights);
template <RowFormat kFormat>
void add_values_by_digits(const TaskState& state, const DecodeBlock& block, std::int64_t start,
                          const KeyRange& kv_block, const float* weights);

}  // namespace heed::detail::HEED_ISA
