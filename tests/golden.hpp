// The recorded tensors in tests/data/golden, and comparisons with them.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "heed/io/tensors.hpp"
#include "heed/tensor.hpp"

namespace heed::test {

/// Reads tests/data/golden/NAME.npy.
inline Tensor golden(const std::string& name) {
  return io::read_npy(std::string(HEED_TEST_DATA) + "/golden/" + name + ".npy");
}

/// True if both have the same dtype, shape and bytes.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.view().data(), b.view().data(),
                     static_cast<std::size_t>(a.count()) * size_of(a.dtype())) == 0;
}

/// The norm of got - expected, divided by the norm of expected. Infinite if the shapes differ; NaN if either
/// contains NaN.
inline double relative_error(const TensorView& got, const TensorView& expected) {
  if (got.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  const Tensor a = Tensor::copy_of(got, DType::f64);
  const Tensor b = Tensor::copy_of(expected, DType::f64);
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
    difference += std::pow(a.values<double>()[i] - b.values<double>()[i], 2);
    norm += std::pow(b.values<double>()[i], 2);
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1);
}

}  // namespace heed::test
