// What stands before the elements of a .npy file of NumPy, versions 1.0 to 3.0, as numpy.lib.format describes
// it:
//   "\x93NUMPY", version (2 bytes), length of the header (2 bytes in version 1, else 4; little endian),
//   the header (npy_header.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/tensor.hpp"
#include "io/byte_source.hpp"
#include "io/npy_header.hpp"

namespace heed::io::detail {

/// It is never longer, or refused.
inline constexpr std::size_t kMostNpyStartBytes = 10012;

/// Leaves the source at the first element. Throws Error (io).
[[nodiscard]] NpyHeader read_npy_start(ByteSource& source);

/// Of the elements. Throws Error (io) where 64 bits cannot count them.
[[nodiscard]] std::uint64_t npy_byte_count(const NpyHeader& header, const std::string& subject);
/// Throws Error (io): "'q.npy' has 3 bytes of data; its shape [2] of f32 needs 8".
[[noreturn]] void fail_npy_length(const std::string& subject, const NpyHeader& header, const std::string& has,
                                  std::uint64_t needed);

/// Version 1.0, row-major, of this machine's byte order. bf16 has no name: invalid_argument.
[[nodiscard]] std::string npy_start(DType dtype, const Dims& shape);

}  // namespace heed::io::detail
