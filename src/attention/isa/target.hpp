// One unit: kernels for one instruction set. A unit (avx512.cpp, avx2.cpp, …) defines HEED_ISA as its
// namespace, includes its simd_*.hpp (vector types and their operations), and then this file. These headers
// may include nothing else but <cstdint>, <cstddef> and intrinsics. An inline function of the standard
// library would be compiled for this instruction set, and the linker might keep that copy for the whole
// program.
#pragma once

#include "attention/kernels/backward/backward.hpp"
#include "attention/kernels/forward/forward.hpp"
#include "attention/kernels/forward/weights_pass.hpp"
#include "attention/kernels/products/bf16_panels.hpp"
#include "attention/kernels/products/f64_products.hpp"
#include "attention/kernels/products/products.hpp"
#include "attention/kernels/shared/arguments.hpp"

namespace heed::detail::HEED_ISA {

/// The calls that this unit takes, in words; takes_forward() and takes_backward() decide.
constexpr const char* taken_calls() {
  if (kComputesEverything) return "every call";
  if (!kHasForward) return "only gradients of bf16 calls with many rows";
  if (!kHasMatrixTiles)
    return "only bf16 calls without dropout: many rows whose output is bf16, or few rows that are read in "
           "place";
  if (UnitFormat::kParts > 1)
    return kMatrixType == DType::f32 ? "only f32 calls with 128 or more rows a key head"
                                     : "only f16 calls with 128 or more rows a key head";
  return MatrixTiles::kHasRegisters
             ? "only bf16 calls whose output is bf16, with 13 or more rows a key head, or "
               "fewer if it reads them in place"
             : "only bf16 calls whose output is bf16, with 13 or more rows a key head, or 5 "
               "if it reads keys in place";
}

inline cpu::Kernels make_kernels(const char* name) {
  cpu::Kernels kernels = {.name = name,
                          .takes = taken_calls(),
                          .takes_forward = takes_forward,
                          .takes_weights_pass = takes_weights_pass,
                          .takes_backward = takes_backward};
  if constexpr (kHasForward) {
    kernels.plan_tiling = plan_tiling;
    kernels.plan_weights_pass = plan_weights_pass;
    kernels.reset = reset;
    kernels.forward = forward;
    kernels.forward_received = forward_received;
    kernels.finish_received = finish_received;
    kernels.takes_received = takes_received;
    kernels.attend_span = attend_span;
    kernels.merge_spans = merge_spans;
    kernels.clear_states = clear_states;
    kernels.merge_states = merge_states;
    kernels.finish_states = finish_states;
    kernels.weights_pass = weights_pass;
    kernels.kv_block = kKvBlock;
  }
  if constexpr (kComputesEverything) {
    kernels.scores_pass = scores_pass;
    kernels.add_f64_product = add_f64_product;
    kernels.products = make_products();
  }
  if constexpr (kMultipliesBf16Panels) {
    kernels.add_bf16_panel = add_bf16_panel;
    kernels.round_bf16 = round_to_bf16;
  }
  if constexpr (kComputesEverything || kHasMatrixTiles) {
    kernels.backward_bytes = backward_bytes;
    kernels.backward = backward;
    kernels.add_query_parts = add_query_parts;
  }
  return kernels;
}

}  // namespace heed::detail::HEED_ISA
