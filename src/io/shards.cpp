// Shards of tensors in files. Positions of an axis form runs of bytes, one run per index of the axes before
// it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "core/message.hpp"
#include "heed/io/shards.hpp"
#include "io/atomic_file.hpp"
#include "io/fault.hpp"
#include "io/mapped_file.hpp"
#include "io/npy_start.hpp"
#include "io/random_access_file.hpp"
#include "io/safetensors_file.hpp"

namespace heed::io {
namespace {

using namespace detail;

using heed::detail::refuse;

int axis_of(const Dims& shape, int axis) {
  const int counted = axis < 0 ? axis + shape.size() : axis;
  if (counted < 0 || counted >= shape.size())
    refuse("axis is ", axis, "; one of shape ", shape, " is expected");
  return counted;
}

std::int64_t count_of(std::span<const PositionRange> positions, std::int64_t length) {
  std::int64_t count = 0;
  for (const PositionRange& range : positions) {
    if (range.begin < 0 || range.end < range.begin || range.end > length)
      refuse("positions ", range.begin, " to ", range.end, " are requested; positions within 0 to ", length,
             " are expected");
    count += range.end - range.begin;
  }
  return count;
}

// Calls work(offset in the file's data, bytes) for each run of bytes of the positions, in shard order.
template <class Work>
void for_each_run(const Dims& stored, int axis, std::span<const PositionRange> positions, std::size_t width,
                  Work work) {
  for (int i = 0; i < stored.size(); ++i)
    if (stored[i] == 0) return;  // the other sizes of an empty tensor may be anything
  std::int64_t outer = 1, inner = static_cast<std::int64_t>(width);
  for (int i = 0; i < axis; ++i) outer *= stored[i];
  for (int i = axis + 1; i < stored.size(); ++i) inner *= stored[i];
  for (std::int64_t n = 0; n < outer; ++n)
    for (const PositionRange& range : positions)
      work(static_cast<std::uint64_t>((n * stored[axis] + range.begin) * inner),
           static_cast<std::size_t>((range.end - range.begin) * inner));
}

// The header and the offset offset of the elements.
std::pair<NpyHeader, std::uint64_t> read_start(const RandomAccessFile& file, const std::string& path) {
  std::vector<std::byte> start(std::min<std::uint64_t>(file.size(), detail::kMaxNpyStartBytes));
  file.read(0, start);
  detail::ByteSource source(start, path);
  NpyHeader header = detail::read_npy_start(source);
  const std::uint64_t begin = start.size() - source.remaining().value_or(0);
  const std::uint64_t needed = detail::npy_byte_count(header, file.subject());
  if (file.size() - begin != needed)
    detail::fail_npy_length(file.subject(), header, std::to_string(file.size() - begin), needed);
  return {header, begin};
}

void write_at(int file, const std::string& subject, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system("write", subject, errno);
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace

struct TensorOnDisk::Impl {
  explicit Impl(const std::string& name) : path(name), file(name) {
    std::tie(header, begin) = read_start(file, name);
  }
  Impl(std::string name, detail::SafetensorsFile&& opened, const detail::StoredTensor& stored)
      : path(std::move(name)), file(std::move(opened.file)), begin(opened.header.data_begin + stored.begin) {
    header.dtype = *stored.type->dtype;
    header.shape = stored.shape;
  }

  std::string path;
  RandomAccessFile file;
  NpyHeader header;
  std::uint64_t begin = 0;  // offset of the elements
  std::unique_ptr<detail::MappedFile> memory;
};

TensorOnDisk::TensorOnDisk(const std::string& path, const std::string& name) {
  if (name.empty()) {
    impl_ = std::make_unique<Impl>(path);
    return;
  }
  detail::SafetensorsFile opened(path);
  const detail::StoredTensor& stored = opened.readable(name);
  impl_ = std::make_unique<Impl>(path, std::move(opened), stored);
}
TensorOnDisk::~TensorOnDisk() = default;
TensorOnDisk::TensorOnDisk(TensorOnDisk&&) noexcept = default;
TensorOnDisk& TensorOnDisk::operator=(TensorOnDisk&&) noexcept = default;

DType TensorOnDisk::dtype() const noexcept { return impl_->header.dtype; }
const Dims& TensorOnDisk::shape() const noexcept { return impl_->header.shape; }

Tensor TensorOnDisk::read(int axis, std::span<const PositionRange> positions) const {
  const NpyHeader& header = impl_->header;
  axis = axis_of(header.shape, axis);
  const Dims stored = header.fortran_order ? reversed(header.shape) : header.shape;
  const int stored_axis = header.fortran_order ? header.shape.size() - 1 - axis : axis;
  Dims shard = stored;
  shard[stored_axis] = count_of(positions, stored[stored_axis]);
  Tensor tensor = Tensor::uninitialized(shard, header.dtype);
  const std::size_t width = size_of(header.dtype);
  std::span<std::byte> rest = bytes_of(tensor);
  for_each_run(stored, stored_axis, positions, width, [&](std::uint64_t offset, std::size_t count) {
    impl_->file.read(impl_->begin + offset, rest.first(count));
    rest = rest.subspan(count);
  });
  return detail::from_stored(std::move(tensor), header);
}

std::optional<TensorView> TensorOnDisk::mapped() {
  Impl& stored = *impl_;
  const NpyHeader& header = stored.header;
  if (header.swapped || stored.begin % size_of(header.dtype) != 0) return std::nullopt;
  if (!stored.memory) stored.memory = std::make_unique<detail::MappedFile>(stored.path, stored.file.size());
  const Dims strides = header.fortran_order ? reversed(contiguous_strides(reversed(header.shape)))
                                            : contiguous_strides(header.shape);
  return TensorView(stored.memory->data() + stored.begin, header.dtype, header.shape, strides);
}

struct SharedNpyFiles::Impl {
  std::vector<std::unique_ptr<detail::AtomicFile>> files;
  std::set<std::filesystem::path> targets;
};

SharedNpyFiles::SharedNpyFiles() : impl_(std::make_unique<Impl>()) {}
SharedNpyFiles::~SharedNpyFiles() = default;
SharedNpyFiles::SharedNpyFiles(SharedNpyFiles&&) noexcept = default;
SharedNpyFiles& SharedNpyFiles::operator=(SharedNpyFiles&&) noexcept = default;

std::string SharedNpyFiles::add(const std::string& path, DType dtype, const Dims& shape) {
  NpyHeader header;
  header.dtype = dtype == DType::bf16 ? DType::f32 : dtype;
  header.shape = shape;
  const std::string start = detail::npy_start(header.dtype, shape);
  auto file = std::make_unique<detail::AtomicFile>(path);
  std::string temporary = file->temporary_path();
  if (temporary.empty())
    fail(detail::subject_of(path), "is not a regular file, which writing by several processes needs");
  file->write(std::as_bytes(std::span(start)));
  file->extend(detail::npy_byte_count(header, detail::subject_of(path)));
  if (!impl_->targets.insert(std::filesystem::weakly_canonical(path)).second)
    refuse("path is ", detail::subject_of(path), " once more; a file of its own for each tensor is expected");
  impl_->files.push_back(std::move(file));
  return temporary;
}

void SharedNpyFiles::commit() {
  detail::commit_together(impl_->files);
  *impl_ = {};
}

namespace {

struct Destination {
  const std::string& path;
  NpyHeader header;
  std::uint64_t begin;  // offset of the elements
};

Destination destination_at(const std::string& path) {
  auto [header, begin] = read_start(RandomAccessFile(path), path);
  return {path, header, begin};
}

// The shard in the file's form: row-major, in its dtype. A view of bools may have any byte; a copy has only 0
// and 1.
class Fitted {
 public:
  Fitted(const Destination& to, const Dims& expected, const TensorView& shard) : view_(shard) {
    const DType dtype = shard.dtype() == DType::bf16 ? DType::f32 : shard.dtype();
    const NpyHeader& header = to.header;
    if (!(shard.shape() == expected) || dtype != header.dtype || header.fortran_order || header.swapped)
      refuse("shard has shape ", shard.shape(), " and dtype ", shard.dtype(), "; ", to_string(expected),
             " and ", header.dtype, ", row-major in '", to.path, "', are expected");
    if (dtype == shard.dtype() && dtype != DType::boolean && shard.is_contiguous()) return;
    copy_ = Tensor::copy_of(shard, dtype);
    view_ = copy_;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.data()),
            static_cast<std::size_t>(view_.count()) * size_of(view_.dtype())};
  }

 private:
  Tensor copy_;
  TensorView view_;
};

void write_positions(const Destination& to, const Dims& shape, int axis,
                     std::span<const PositionRange> positions, const Fitted& shard) {
  const std::string subject = detail::subject_of(to.path);
  const detail::FileDescriptor file(::open(detail::system_path(to.path), O_WRONLY | O_CLOEXEC));
  if (!file) fail_system("write", subject, errno);
  std::span<const std::byte> rest = shard.bytes();
  for_each_run(shape, axis, positions, size_of(to.header.dtype),
               [&](std::uint64_t offset, std::size_t count) {
                 write_at(file.get(), subject, to.begin + offset, rest.first(count));
                 rest = rest.subspan(count);
               });
  if (::fsync(file.get()) != 0) fail_system("write", subject, errno);
}

}  // namespace

void write_npy_shard(const std::string& path, int axis, std::span<const PositionRange> positions,
                     const TensorView& shard) {
  const Destination to = destination_at(path);
  const Dims& shape = to.header.shape;
  axis = axis_of(shape, axis);
  Dims expected = shape;
  expected[axis] = count_of(positions, shape[axis]);
  write_positions(to, shape, axis, positions, Fitted(to, expected, shard));
}

void write_npy_shard(const std::string& path, const TensorView& whole) {
  const Destination to = destination_at(path);
  const PositionRange all{0, element_count(to.header.shape)};
  write_positions(to, {all.end}, 0, {&all, 1}, Fitted(to, to.header.shape, whole));
}

}  // namespace heed::io
