// Reads arbitrary bytes as a .npy file. They load, or are refused with Error (io).
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "io/npy_header.hpp"

namespace {

using heed::fuzz::require;

// Requires that the tensor's header, when written, describes the same tensor.
void check_header(const heed::Tensor& tensor) {
  const auto header = heed::io::detail::parse_npy_header(
      heed::io::detail::npy_header_text(tensor.dtype(), tensor.shape()), "x");
  require(header.dtype == tensor.dtype() && header.shape == tensor.shape());
  require(!header.swapped && !header.fortran_order);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const heed::Tensor tensor = heed::io::read_npy_bytes(std::as_bytes(std::span(data, size)), "x.npy");
    // The tensor is no larger than the file, so its elements came from there.
    require(static_cast<std::size_t>(tensor.count()) * heed::size_of(tensor.dtype()) < size);
    check_header(tensor);
  } catch (const heed::Error& error) {
    require(error.code() == heed::ErrorCode::io);
  }
  return 0;
}
