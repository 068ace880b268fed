// Composition scores: how well one head's output fits what a later head reads, by the weights alone.
//
// With W_QK = W_Q^T W_K and W_OV = W_O W_V of a head, and Frobenius norms (Elhage et al. 2021, "Composition
// Scores"):
//
//   query  |W_QK^T W_OV'| / (|W_QK| |W_OV'|)
//   key    |W_QK   W_OV'| / (|W_QK| |W_OV'|)
//   value  |W_OV   W_OV'| / (|W_OV| |W_OV'|)
//
// W_OV' is the writer's. Gains of norms are part of the weights; rotations are left out.
#pragma once

#include "heed/export.hpp"
#include "heed/model/model.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Composition scores of all pairs of heads, by the weights alone.
struct Composition {
  /// [layers, H, layers, H], f32: reader, then writer. 0 where the writer's layer is not before the
  /// reader's.
  Tensor query, key, value;
  double random = 0;  ///< the score to expect of independent random weights: 1 / sqrt(D)
};

/// No text is needed. It takes O((layers H)^2) memory and a copy of W_O of all layers in f32. `threads` 0:
/// all processors. Throws Error (invalid_argument) for a model that normalises its stream between layers
/// (BERT): there a head's output is read through norms that depend on the text.
[[nodiscard]] HEED_API Composition composition_scores(const Model& model, int threads = 0);

}  // namespace heed
