// The recorded tensors in tests/data/golden, and how far a tensor is from one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>

#include "heed/tensor.hpp"

namespace heed::test {

/// Reads tests/data/golden/NAME.npy: version 1, little endian, C order.
inline Tensor golden(const std::string& name) {
  const std::string path = std::string(HEED_TEST_DATA) + "/golden/" + name + ".npy";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 10) throw std::runtime_error("no golden tensor " + path);
  const std::size_t header = static_cast<std::uint8_t>(bytes[8]) + 256u * static_cast<std::uint8_t>(bytes[9]);
  const std::string text = bytes.substr(10, header);
  if (text.find("'fortran_order': False") == std::string::npos)
    throw std::runtime_error(path + " is in Fortran order");
  DType dtype = DType::f32;
  if (text.find("'<f8'") != std::string::npos) dtype = DType::f64;
  if (text.find("'<i8'") != std::string::npos) dtype = DType::i64;
  Dims shape;
  const char* at = text.c_str() + text.find('(') + 1;
  while (*at != ')') {
    char* end = nullptr;
    shape.push_back(std::strtoll(at, &end, 10));
    at = end;
    while (*at == ',' || *at == ' ') ++at;
  }
  Tensor tensor(shape, dtype);
  const std::size_t size = static_cast<std::size_t>(tensor.count()) * size_of(dtype);
  if (bytes.size() != 10 + header + size) throw std::runtime_error(path + " has the wrong size");
  std::memcpy(tensor.mutable_view().data(), bytes.data() + 10 + header, size);
  return tensor;
}

/// True where both have one dtype, one shape and the same bytes.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.view().data(), b.view().data(),
                     static_cast<std::size_t>(a.count()) * size_of(a.dtype())) == 0;
}

/// The norm of got - expected over the norm of expected; infinite where the shapes differ, NaN where either
/// has one.
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
