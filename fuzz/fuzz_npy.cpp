// Any bytes as a .npy file: they load, or are refused with Error (io).
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/io.hpp"
#include "io/npy_header.hpp"

namespace {

using heed::fuzz::require;

// What was loaded has a header that says just that.
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
    // Nothing comes from nowhere: the elements were in the file.
    require(static_cast<std::size_t>(tensor.count()) * heed::size_of(tensor.dtype()) < size);
    check_header(tensor);
  } catch (const heed::Error& error) {
    require(error.code() == heed::ErrorCode::io);
  }
  return 0;
}
