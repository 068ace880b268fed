// The .npy format of NumPy, versions 1.0 to 3.0, as numpy.lib.format describes it:
//   "\x93NUMPY", version (2 bytes), length of the header (2 bytes in version 1, else 4; little endian),
//   the header (npy_header.hpp), the elements.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/io.hpp"
#include "io/atomic_file.hpp"
#include "io/byte_source.hpp"
#include "io/fault.hpp"
#include "io/npy_header.hpp"

namespace heed::io {
namespace {

using detail::ByteSource;
using detail::fail;
using detail::NpyHeader;

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy's own reader takes no longer header either (max_header_size). One that heed can read needs 200 bytes.
constexpr std::uint32_t kMaxHeaderBytes = 10000;
// NumPy aligns the data so that it can be mapped into memory.
constexpr std::size_t kDataAlignment = 64;
// Of a source whose length is not known, so much memory is taken ahead of the bytes that have come.
constexpr std::uint64_t kChunkBytes = std::uint64_t{8} << 20;

void read_preamble(ByteSource& source, std::span<std::byte> to, const char* part) {
  const std::size_t count = source.read(to);
  if (count < to.size())
    fail(source.subject(), "ends inside its " + std::string(part) + ": " + std::to_string(count) + " of " +
                               std::to_string(to.size()) + " bytes are there");
}

NpyHeader read_header(ByteSource& source) {
  std::array<std::byte, 8> start{};
  const std::size_t count = source.read(start);
  if (count < kMagic.size() || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0)
    fail(source.subject(), "is not a .npy file: it does not begin with \\x93NUMPY");
  if (count < start.size()) fail(source.subject(), "ends inside its version");
  const auto major = std::to_integer<unsigned>(start[6]);
  const auto minor = std::to_integer<unsigned>(start[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail(source.subject(), "has version " + std::to_string(major) + "." + std::to_string(minor) +
                               " of the .npy format; 1.0, 2.0 or 3.0 is expected");

  std::array<std::byte, 4> length_bytes{};
  read_preamble(source, std::span(length_bytes).first(major == 1 ? 2 : 4), "header's length");
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < length_bytes.size(); ++i)
    length |= std::to_integer<std::uint32_t>(length_bytes[i]) << (8 * i);
  if (length > kMaxHeaderBytes)
    fail(source.subject(), "has a header of " + std::to_string(length) + " bytes; at most " +
                               std::to_string(kMaxHeaderBytes) + " are expected");
  std::string text(length, '\0');
  read_preamble(source, std::as_writable_bytes(std::span(text)), "header");
  return detail::parse_npy_header(text, source.subject());
}

std::uint64_t byte_count(const NpyHeader& header, const std::string& subject) {
  try {
    std::int64_t bytes = 0;
    if (!__builtin_mul_overflow(element_count(header.shape), static_cast<std::int64_t>(size_of(header.dtype)),
                                &bytes))
      return static_cast<std::uint64_t>(bytes);
  } catch (const Error&) {  // the same overflow, one product earlier
  }
  fail(subject, "has the shape " + to_string(header.shape) + " of " + std::string(name_of(header.dtype)) +
                    ", more bytes than 64 bits can count");
}

[[noreturn]] void fail_length(const std::string& subject, const NpyHeader& header, const std::string& has,
                              std::uint64_t needed) {
  fail(subject, "has " + has + " bytes of data; its shape " + to_string(header.shape) + " of " +
                    std::string(name_of(header.dtype)) + " needs " + std::to_string(needed));
}

void refuse_more(ByteSource& source, const NpyHeader& header, std::uint64_t needed) {
  std::array<std::byte, 1> more{};
  if (source.read(more) > 0)
    fail_length(source.subject(), header, "more than " + std::to_string(needed), needed);
}

std::span<std::byte> bytes_of(Tensor& tensor, std::uint64_t bytes) {
  return {static_cast<std::byte*>(tensor.mutable_view().data()), static_cast<std::size_t>(bytes)};
}

// A header is believed only as far as bytes follow it: memory for the elements is taken when they are known
// to be there, or as they come. `stored` is the shape in the order in which the elements lie.
Tensor read_elements(ByteSource& source, const NpyHeader& header, const Dims& stored) {
  const std::uint64_t needed = byte_count(header, source.subject());
  const auto remaining = source.remaining();
  if (remaining && *remaining != needed)
    fail_length(source.subject(), header, std::to_string(*remaining), needed);
  if (remaining || needed <= kChunkBytes) {
    Tensor tensor = Tensor::uninitialized(stored, header.dtype);
    const std::size_t count = source.read(bytes_of(tensor, needed));
    if (count != needed) fail_length(source.subject(), header, std::to_string(count), needed);
    refuse_more(source, header, needed);
    return tensor;
  }

  std::vector<std::vector<std::byte>> chunks;
  for (std::uint64_t done = 0; done < needed;) {
    std::vector<std::byte>& chunk = chunks.emplace_back(std::min(kChunkBytes, needed - done));
    const std::size_t count = source.read(chunk);
    done += count;
    if (count < chunk.size()) fail_length(source.subject(), header, std::to_string(done), needed);
  }
  refuse_more(source, header, needed);
  Tensor tensor = Tensor::uninitialized(stored, header.dtype);
  std::span<std::byte> rest = bytes_of(tensor, needed);
  for (std::vector<std::byte>& chunk : chunks) {
    std::memcpy(rest.data(), chunk.data(), chunk.size());
    rest = rest.subspan(chunk.size());
    std::vector<std::byte>().swap(chunk);
  }
  return tensor;
}

Tensor read_from(ByteSource source) {
  const NpyHeader header = read_header(source);
  // Column-major is row-major with the axes the other way round.
  const int rank = header.shape.size();
  Dims stored = header.shape;
  if (header.fortran_order)
    for (int axis = 0; axis < rank; ++axis) stored[axis] = header.shape[rank - 1 - axis];
  Tensor tensor = read_elements(source, header, stored);

  const std::size_t width = size_of(header.dtype);
  const std::span<std::byte> bytes = bytes_of(tensor, static_cast<std::uint64_t>(tensor.count()) * width);
  if (header.swapped)
    for (std::size_t i = 0; i < bytes.size(); i += width) std::ranges::reverse(bytes.subspan(i, width));
  // Any byte may stand in a file; in memory a bool is 0 or 1.
  if (header.dtype == DType::boolean)
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(byte != std::byte{0} ? 1 : 0);
  if (!header.fortran_order || rank < 2) return tensor;

  const Dims stored_strides = contiguous_strides(stored);
  Dims strides = stored_strides;
  for (int axis = 0; axis < rank; ++axis) strides[axis] = stored_strides[rank - 1 - axis];
  return Tensor::copy_of(TensorView(tensor.view().data(), tensor.dtype(), header.shape, strides));
}

void write_to(detail::AtomicFile& file, const TensorView& tensor) {
  const DType dtype = tensor.dtype() == DType::bf16 ? DType::f32 : tensor.dtype();
  // A view of bools may show any byte; a copy holds 0 and 1.
  const bool as_it_is = dtype == tensor.dtype() && dtype != DType::boolean && tensor.is_contiguous();
  const Tensor copied = as_it_is ? Tensor() : Tensor::copy_of(tensor, dtype);
  const void* data = as_it_is ? tensor.data() : copied.view().data();
  const std::size_t bytes = static_cast<std::size_t>(tensor.count()) * size_of(dtype);

  std::string header = detail::npy_header_text(dtype, tensor.shape());
  const std::size_t preamble = kMagic.size() + 4;  // version and length
  const std::size_t unpadded = preamble + header.size() + 1;
  header.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  header += '\n';
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  start += header;

  file.write(std::as_bytes(std::span(start)));
  file.write({static_cast<const std::byte*>(data), bytes});
}

}  // namespace

Tensor read_npy(const std::string& path) { return read_from(ByteSource::open(path)); }

Tensor read_npy_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return read_from(ByteSource(bytes, name));
}

void write_npy(const std::string& path, const TensorView& tensor) {
  detail::AtomicFile file(path);
  write_to(file, tensor);
  file.commit();
}

void write_npy_files(const std::vector<std::pair<std::string, TensorView>>& files) {
  std::vector<std::unique_ptr<detail::AtomicFile>> staged;
  for (const auto& [path, tensor] : files) {
    staged.push_back(std::make_unique<detail::AtomicFile>(path));
    write_to(*staged.back(), tensor);
  }
  detail::commit_together(staged);
}

}  // namespace heed::io
