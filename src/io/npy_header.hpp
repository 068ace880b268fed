// The header of a .npy file: the text of a Python dict, parsed and never evaluated.
#pragma once

#include <string>
#include <string_view>

#include "heed/tensor.hpp"

namespace heed::io::detail {

struct NpyHeader {
  DType dtype = DType::f32;
  bool swapped = false;  ///< the elements have the other byte order than this machine
  bool fortran_order = false;
  Dims shape;
};

/// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }". Accepts a subset of NumPy's syntax:
/// each key once, no escapes in strings, decimal integers. Throws Error (io); the message starts with
/// `subject`.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text, const std::string& subject);

/// Header text for a row-major array in this machine's byte order. Throws invalid_argument for bf16, which
/// has no .npy name.
[[nodiscard]] std::string npy_header_text(DType dtype, const Dims& shape);

}  // namespace heed::io::detail
