// Reading and writing of whole .npy files: the start described in npy_start.hpp, then the elements.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "heed/io/tensors.hpp"
#include "io/atomic_file.hpp"
#include "io/byte_source.hpp"
#include "io/fault.hpp"
#include "io/npy_start.hpp"

namespace heed::io {
namespace {

using detail::bytes_of;
using detail::ByteSource;
using detail::fail_npy_length;
using detail::npy_byte_count;
using detail::NpyHeader;

// Memory allocated ahead of the received bytes, for a source of unknown length.
constexpr std::uint64_t kChunkBytes = std::uint64_t{8} << 20;

void refuse_more(ByteSource& source, const NpyHeader& header, std::uint64_t needed) {
  std::array<std::byte, 1> more{};
  if (source.read(more) > 0)
    fail_npy_length(source.subject(), header, "more than " + std::to_string(needed), needed);
}

// Memory for the elements is allocated only once their bytes are known to exist, or as they arrive, because a
// header may lie. `stored` is the shape in storage order.
Tensor read_elements(ByteSource& source, const NpyHeader& header, const Dims& stored) {
  const std::uint64_t needed = npy_byte_count(header, source.subject());
  const auto remaining = source.remaining();
  if (remaining && *remaining != needed)
    fail_npy_length(source.subject(), header, std::to_string(*remaining), needed);
  if (remaining || needed <= kChunkBytes) {
    Tensor tensor = Tensor::uninitialized(stored, header.dtype);
    const std::size_t count = source.read(bytes_of(tensor));
    if (count != needed) fail_npy_length(source.subject(), header, std::to_string(count), needed);
    refuse_more(source, header, needed);
    return tensor;
  }

  std::vector<std::vector<std::byte>> chunks;
  for (std::uint64_t done = 0; done < needed;) {
    std::vector<std::byte>& chunk = chunks.emplace_back(std::min(kChunkBytes, needed - done));
    const std::size_t count = source.read(chunk);
    done += count;
    if (count < chunk.size()) fail_npy_length(source.subject(), header, std::to_string(done), needed);
  }
  refuse_more(source, header, needed);
  Tensor tensor = Tensor::uninitialized(stored, header.dtype);
  std::span<std::byte> rest = bytes_of(tensor);
  for (std::vector<std::byte>& chunk : chunks) {
    std::memcpy(rest.data(), chunk.data(), chunk.size());
    rest = rest.subspan(chunk.size());
    std::vector<std::byte>().swap(chunk);
  }
  return tensor;
}

Tensor read_from(ByteSource source) {
  const NpyHeader header = detail::read_npy_start(source);
  const Dims stored = header.fortran_order ? detail::reversed(header.shape) : header.shape;
  return detail::from_stored(read_elements(source, header, stored), header);
}

DType stored_dtype(const TensorView& tensor) {
  return tensor.dtype() == DType::bf16 ? DType::f32 : tensor.dtype();
}

std::size_t stored_bytes(const TensorView& tensor) {
  return static_cast<std::size_t>(tensor.count()) * size_of(stored_dtype(tensor));
}

// Calls wrote(bytes) after each piece of the numbers.
template <class Wrote>
void write_to(detail::AtomicFile& file, const TensorView& tensor, Wrote wrote) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  const DType dtype = stored_dtype(tensor);
  // A view of bools may have any byte; a copy has only 0 and 1.
  const bool as_it_is = dtype == tensor.dtype() && dtype != DType::boolean && tensor.is_contiguous();
  const Tensor copied = as_it_is ? Tensor() : Tensor::copy_of(tensor, dtype);
  const void* data = as_it_is ? tensor.data() : copied.view().data();

  const std::string start = detail::npy_start(dtype, tensor.shape());
  file.write(std::as_bytes(std::span(start)));
  std::span<const std::byte> rest(static_cast<const std::byte*>(data), stored_bytes(tensor));
  while (!rest.empty()) {
    const std::span<const std::byte> piece = rest.first(std::min(kPiece, rest.size()));
    file.write(piece);
    wrote(piece.size());
    rest = rest.subspan(piece.size());
  }
}

}  // namespace

Tensor read_npy(const std::string& path) { return read_from(ByteSource::open(path)); }

Tensor read_npy_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return read_from(ByteSource(bytes, name));
}

void write_npy(const std::string& path, const TensorView& tensor) {
  detail::AtomicFile file(path);
  write_to(file, tensor, [](std::size_t) {});
  file.commit();
}

void write_npy_files(const std::vector<std::pair<std::string, TensorView>>& files,
                     const std::function<void(double share)>& progress) {
  std::size_t all = 0, done = 0;
  for (const auto& [path, tensor] : files) all += stored_bytes(tensor);
  const auto wrote = [&](std::size_t bytes) {
    done += bytes;
    if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
  };
  std::vector<std::unique_ptr<detail::AtomicFile>> staged;
  std::set<std::filesystem::path> targets;
  for (const auto& [path, tensor] : files) {
    staged.push_back(std::make_unique<detail::AtomicFile>(path));
    const bool is_device = staged.back()->temporary_path().empty();
    if (!is_device && !targets.insert(std::filesystem::weakly_canonical(path)).second)
      heed::detail::refuse("files writes ", detail::subject_of(path),
                           " twice; a file for each tensor is expected");
    write_to(*staged.back(), tensor, wrote);
  }
  detail::commit_together(staged);
}

}  // namespace heed::io
