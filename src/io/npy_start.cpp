#include "io/npy_start.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "io/fault.hpp"

namespace heed::io::detail {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy's reader has the same limit (max_header_size). A header that heed supports needs 200 bytes.
constexpr std::uint32_t kMaxTextBytes = 10000;
static_assert(kMaxTextBytes + 12 == kMaxNpyStartBytes);
// NumPy aligns the data so that it can be mapped into memory.
constexpr std::size_t kDataAlignment = 64;

void read_preamble(ByteSource& source, std::span<std::byte> to, const char* part) {
  const std::size_t count = source.read(to);
  if (count < to.size())
    fail(source.subject(), "ends inside its ", part, ": ", count, " of ", to.size(), " bytes are there");
}

}  // namespace

NpyHeader read_npy_start(ByteSource& source) {
  std::array<std::byte, 8> start{};
  const std::size_t count = source.read(start);
  if (count < kMagic.size() || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0)
    fail(source.subject(), "is not a .npy file: it does not begin with \\x93NUMPY");
  if (count < start.size()) fail(source.subject(), "ends inside its version");
  const auto major = std::to_integer<unsigned>(start[6]);
  const auto minor = std::to_integer<unsigned>(start[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail(source.subject(), "has version ", major, ".", minor,
         " of the .npy format; 1.0, 2.0 or 3.0 is expected");

  std::array<std::byte, 4> length_bytes{};
  read_preamble(source, std::span(length_bytes).first(major == 1 ? 2 : 4), "header's length");
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < length_bytes.size(); ++i)
    length |= std::to_integer<std::uint32_t>(length_bytes[i]) << (8 * i);
  if (length > kMaxTextBytes)
    fail(source.subject(), "has a header of ", length, " bytes; at most ", kMaxTextBytes, " are expected");
  std::string text(length, '\0');
  read_preamble(source, std::as_writable_bytes(std::span(text)), "header");
  return parse_npy_header(text, source.subject());
}

std::uint64_t npy_byte_count(const NpyHeader& header, const std::string& subject) {
  try {
    std::int64_t bytes = 0;
    if (!__builtin_mul_overflow(element_count(header.shape), static_cast<std::int64_t>(size_of(header.dtype)),
                                &bytes))
      return static_cast<std::uint64_t>(bytes);
  } catch (const Error& error) {  // the same overflow, found one product earlier
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
  fail(subject, "has the shape ", header.shape, " of ", header.dtype, ", more bytes than 64 bits can count");
}

void fail_npy_length(const std::string& subject, const NpyHeader& header, const std::string& has,
                     std::uint64_t needed) {
  fail(subject, "has ", has, " bytes of data; its shape ", header.shape, " of ", header.dtype, " needs ",
       needed);
}

Dims reversed(const Dims& dims) {
  Dims turned = dims;
  for (int axis = 0; axis < dims.size(); ++axis) turned[axis] = dims[dims.size() - 1 - axis];
  return turned;
}

std::span<std::byte> bytes_of(Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_view().data()),
          static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype())};
}

Tensor from_stored(Tensor stored, const NpyHeader& header) {
  const std::size_t width = size_of(header.dtype);
  const std::span<std::byte> bytes = bytes_of(stored);
  if (header.swapped)
    for (std::size_t i = 0; i < bytes.size(); i += width) std::ranges::reverse(bytes.subspan(i, width));
  // A file may hold any byte; a bool in memory must be 0 or 1.
  if (header.dtype == DType::boolean)
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(byte != std::byte{0} ? 1 : 0);
  if (!header.fortran_order || header.shape.size() < 2) return stored;
  return Tensor::copy_of(TensorView(stored.view().data(), header.dtype, reversed(stored.shape()),
                                    reversed(contiguous_strides(stored.shape()))));
}

std::string npy_start(DType dtype, const Dims& shape) {
  std::string header = npy_header_text(dtype, shape);
  const std::size_t preamble = kMagic.size() + 4;  // version and length
  const std::size_t unpadded = preamble + header.size() + 1;
  header.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  header += '\n';
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return start + header;
}

}  // namespace heed::io::detail
