// The header of a .npy file: the text of a Python dict, parsed and never evaluated.
#pragma once

#include <string>
#include <string_view>

#include "heed/tensor.hpp"

namespace heed::io::detail {

struct NpyHeader {
  DType dtype = DType::f32;
  bool swapped = false;  ///< the bytes of each element stand in the other order than this machine's
  bool fortran_order = false;
  Dims shape;
};

/// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }". What it accepts is a part of what
/// NumPy accepts: each key once, no escapes in strings, whole numbers in decimal. Throws Error (io), a
/// sentence that begins with `subject`.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text, const std::string& subject);

/// The same text for a row-major array of this machine's byte order. bf16 has no name: invalid_argument.
[[nodiscard]] std::string npy_header_text(DType dtype, const Dims& shape);

}  // namespace heed::io::detail
