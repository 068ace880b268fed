// The start of a .npy file before the elements, versions 1.0 to 3.0, as described by numpy.lib.format:
//   "\x93NUMPY", version (2 bytes), length of the header (2 bytes in version 1, else 4; little endian),
//   the header (npy_header.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "heed/tensor.hpp"
#include "io/byte_source.hpp"
#include "io/npy_header.hpp"

namespace heed::io::detail {

/// Longest accepted start.
inline constexpr std::size_t kMaxNpyStartBytes = 10012;

/// Reads the start and leaves the source at the first element. Throws Error (io).
[[nodiscard]] NpyHeader read_npy_start(ByteSource& source);

/// Size of the elements in bytes. Throws Error (io) if it exceeds 64 bits.
[[nodiscard]] std::uint64_t npy_byte_count(const NpyHeader& header, const std::string& subject);
/// Throws Error (io): "'q.npy' has 3 bytes of data; its shape [2] of f32 needs 8".
[[noreturn]] void fail_npy_length(const std::string& subject, const NpyHeader& header, const std::string& has,
                                  std::uint64_t needed);

/// The axes in reverse order: column-major order is row-major order with reversed axes.
[[nodiscard]] Dims reversed(const Dims& dims);
[[nodiscard]] std::span<std::byte> bytes_of(Tensor& tensor);
/// The tensor of elements as they are stored: in this machine's byte order, row-major, with bools 0 or 1.
[[nodiscard]] Tensor from_stored(Tensor stored, const NpyHeader& header);

/// A start of version 1.0, row-major, in this machine's byte order. Throws invalid_argument for bf16, which
/// has no .npy name.
[[nodiscard]] std::string npy_start(DType dtype, const Dims& shape);

}  // namespace heed::io::detail
