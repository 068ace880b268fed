#include "model/gguf/gguf_file.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "core/message.hpp"
#include "io/fault.hpp"
#include "io/random_access_file.hpp"

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

namespace heed::io::detail {
namespace {

using Kind = GgufValue::Kind;

constexpr std::uint64_t kMaxValues = 65536, kMaxTensors = 65536, kLongestName = 65535;
constexpr std::uint32_t kMaxAxes = 4;
constexpr std::int64_t kMaxAlignment = 1 << 16;
constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();
// Element size by kind; 0 for kinds of variable length.
constexpr std::array<std::uint64_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <class T>
T number_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Reads items in sequence, never beyond the end.
class GgufCursor {
 public:
  GgufCursor(const std::string& subject, const std::byte* begin, std::uint64_t size)
      : subject_(subject), begin_(begin), size_(size) {}

  [[nodiscard]] const std::byte* take(std::uint64_t bytes) {
    if (bytes > size_ - at_) fail(subject_, "ends at byte ", size_, ", within its header");
    const std::byte* here = begin_ + at_;
    at_ += bytes;
    return here;
  }
  template <class T>
  T number() {
    return number_at<T>(take(sizeof(T)));
  }
  std::string_view text() {
    const auto length = number<std::uint64_t>();
    return {reinterpret_cast<const char*>(take(length)), static_cast<std::size_t>(length)};
  }
  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] const std::string& subject() const { return subject_; }

 private:
  const std::string& subject_;
  const std::byte* begin_;
  std::uint64_t size_, at_ = 0;
};

Kind kind_of(GgufCursor& cursor, const std::string& name) {
  const auto number = cursor.number<std::uint32_t>();
  if (number >= kBytes.size())
    fail(cursor.subject(), "has ", printable(name), " of kind ", number, "; 0 to 12 is expected");
  return static_cast<Kind>(number);
}

std::string name_at(GgufCursor& cursor, const char* of_what) {
  const std::string_view name = cursor.text();
  if (name.empty() || name.size() > kLongestName)
    fail(cursor.subject(), "has the name of a ", of_what, " of ", name.size(),
         " bytes; 1 to 65535 are expected");
  return std::string(name);
}

void skip(GgufCursor& cursor, Kind kind, std::uint64_t count) {
  if (kind == Kind::text) {
    for (std::uint64_t i = 0; i < count; ++i) (void)cursor.text();  // each takes at least 8 bytes
    return;
  }
  const std::uint64_t each = kBytes[static_cast<std::size_t>(kind)];
  if (count > kMaxNumber / each) fail(cursor.subject(), "has a list that is longer than the file");
  (void)cursor.take(count * each);
}

GgufValue value_at(GgufCursor& cursor, const std::string& name) {
  const std::string where = cursor.subject() + " has " + printable(name);
  Kind kind = kind_of(cursor, name);
  const bool list = kind == Kind::list;
  std::uint64_t count = 1;
  if (list) {
    kind = kind_of(cursor, name);
    if (kind == Kind::list)
      heed::detail::refuse(ErrorCode::io, where, ", a list of lists, which heed does not read");
    count = cursor.number<std::uint64_t>();
  }
  const std::byte* data = cursor.take(0);
  skip(cursor, kind, count);
  return {where, kind, data, count, list};
}

std::map<std::string, GgufValue, std::less<>> read_metadata(GgufCursor& cursor, std::uint64_t count) {
  std::map<std::string, GgufValue, std::less<>> metadata;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string name = name_at(cursor, "value");
    GgufValue value = value_at(cursor, name);
    if (metadata.contains(name)) fail(cursor.subject(), "has two values named ", printable(name));
    metadata.emplace(std::move(name), std::move(value));
  }
  return metadata;
}

GgufTensor tensor_at(GgufCursor& cursor) {
  GgufTensor tensor;
  tensor.name = name_at(cursor, "tensor");
  const std::string named = "has a tensor " + printable(tensor.name);
  const auto axes = cursor.number<std::uint32_t>();
  if (axes < 1 || axes > kMaxAxes)
    fail(cursor.subject(), named, " with ", axes, " axes; 1 to 4 are expected");
  std::uint64_t count = 1;
  for (std::uint32_t i = 0; i < axes; ++i) {
    const auto size = cursor.number<std::uint64_t>();
    if (size == 0) fail(cursor.subject(), named, " with an axis of size 0");
    if (size > kMaxNumber || __builtin_mul_overflow(count, size, &count) || count > kMaxNumber)
      fail(cursor.subject(), named, " with more elements than 64 bits can count");
    tensor.sizes.push_back(static_cast<std::int64_t>(size));
  }
  tensor.count = static_cast<std::int64_t>(count);
  tensor.type = cursor.number<std::uint32_t>();
  tensor.offset = cursor.number<std::uint64_t>();
  return tensor;
}

// Offsets count from the first multiple of the alignment after the header.
void place(std::vector<GgufTensor>& tensors, const GgufCursor& cursor, std::uint64_t alignment,
           std::uint64_t size) {
  const std::uint64_t begin = (cursor.at() + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : tensors) {
    const std::string named = "has a tensor " + printable(tensor.name);
    if (tensor.offset % alignment != 0)
      fail(cursor.subject(), named, " at offset ", tensor.offset,
           ", which is not a multiple of the alignment ", alignment);
    if (begin >= size || tensor.offset >= size - begin)
      fail(cursor.subject(), named, " at offset ", tensor.offset, ", beyond the end of the file");
    tensor.offset += begin;
  }
}

}  // namespace

void GgufValue::fail(const char* what) const {
  heed::detail::refuse(ErrorCode::io, where_, " that is ", what);
}

void GgufValue::expect_list(bool list) const {
  if (list != list_) fail(list ? "not a list" : "a list");
}

std::int64_t GgufValue::integer_at(const std::byte* at) const {
  switch (kind_) {
    case Kind::u8:
      return number_at<std::uint8_t>(at);
    case Kind::i8:
      return number_at<std::int8_t>(at);
    case Kind::u16:
      return number_at<std::uint16_t>(at);
    case Kind::i16:
      return number_at<std::int16_t>(at);
    case Kind::u32:
      return number_at<std::uint32_t>(at);
    case Kind::i32:
      return number_at<std::int32_t>(at);
    case Kind::i64:
      return number_at<std::int64_t>(at);
    case Kind::u64:
      if (number_at<std::uint64_t>(at) <= kMaxNumber)
        return static_cast<std::int64_t>(number_at<std::uint64_t>(at));
      fail("beyond 63 bits");
    default:
      fail("not a whole number");
  }
}

double GgufValue::real_at(const std::byte* at) const {
  if (kind_ != Kind::f32 && kind_ != Kind::f64) return static_cast<double>(integer_at(at));
  const double value = kind_ == Kind::f32 ? number_at<float>(at) : number_at<double>(at);
  if (!std::isfinite(value)) fail("not a finite number");
  return value;
}

std::int64_t GgufValue::integer() const {
  expect_list(false);
  return integer_at(data_);
}
double GgufValue::real() const {
  expect_list(false);
  return real_at(data_);
}
bool GgufValue::flag() const {
  expect_list(false);
  if (kind_ != Kind::boolean || number_at<std::uint8_t>(data_) > 1) fail("neither true nor false");
  return number_at<std::uint8_t>(data_) == 1;
}
std::string_view GgufValue::text() const {
  expect_list(false);
  if (kind_ != Kind::text) fail("not a string");
  return {reinterpret_cast<const char*>(data_ + 8),
          static_cast<std::size_t>(number_at<std::uint64_t>(data_))};
}
std::vector<std::string_view> GgufValue::texts() const {
  expect_list(true);
  if (kind_ != Kind::text) fail("not a list of strings");
  std::vector<std::string_view> all;
  all.reserve(static_cast<std::size_t>(count_));
  const std::byte* at = data_;
  for (std::uint64_t i = 0; i < count_; ++i) {
    const auto length = static_cast<std::size_t>(number_at<std::uint64_t>(at));
    all.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return all;
}
template <class Read>
auto GgufValue::list_of(const char* what, Read read) const {
  expect_list(true);
  if (kind_ == Kind::text) fail(what);
  std::vector<decltype(read(data_))> all;
  const std::uint64_t each = kBytes[static_cast<std::size_t>(kind_)];
  for (std::uint64_t i = 0; i < count_; ++i) all.push_back(read(data_ + i * each));
  return all;
}

std::vector<std::int64_t> GgufValue::integers() const {
  return list_of("not a list of whole numbers", [this](const std::byte* at) { return integer_at(at); });
}

std::vector<double> GgufValue::reals() const {
  return list_of("not a list of numbers", [this](const std::byte* at) { return real_at(at); });
}

GgufFile::GgufFile(const std::string& path) {
  {
    const RandomAccessFile file(path);
    subject_ = file.subject();
    size_ = file.size();
  }
  memory_ = std::make_shared<const MappedFile>(path, size_);
  GgufCursor cursor(subject_, memory_->data(), size_);
  if (size_ < 24 || std::memcmp(cursor.take(4), "GGUF", 4) != 0) fail(subject_, "is not a GGUF file");
  const auto version = cursor.number<std::uint32_t>();
  if (version != 2 && version != 3) fail(subject_, "is GGUF of version ", version, "; 2 or 3 is expected");
  const auto tensors = cursor.number<std::uint64_t>(), values = cursor.number<std::uint64_t>();
  if (tensors > kMaxTensors || values > kMaxValues)
    fail(subject_, "has ", tensors, " tensors and ", values, " values; at most 65536 of each are expected");
  metadata_ = read_metadata(cursor, values);
  std::set<std::string_view> names;
  for (std::uint64_t i = 0; i < tensors; ++i) tensors_.push_back(tensor_at(cursor));
  for (const GgufTensor& tensor : tensors_)
    if (!names.insert(tensor.name).second) fail(subject_, "has two tensors named ", printable(tensor.name));
  std::int64_t alignment = 32;
  if (const GgufValue* given = find("general.alignment")) alignment = given->integer();
  if (alignment < 8 || alignment > kMaxAlignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    fail(subject_, "has general.alignment ", alignment, "; a power of two from 8 to 65536 is expected");
  place(tensors_, cursor, static_cast<std::uint64_t>(alignment), size_);
}

const GgufValue* GgufFile::find(std::string_view name) const {
  const auto found = metadata_.find(name);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::int64_t GgufFile::integer_or(std::string_view name, std::int64_t fallback) const {
  const GgufValue* value = find(name);
  return value == nullptr ? fallback : value->integer();
}

double GgufFile::real_or(std::string_view name, double fallback) const {
  const GgufValue* value = find(name);
  return value == nullptr ? fallback : value->real();
}

bool GgufFile::flag_or(std::string_view name, bool fallback) const {
  const GgufValue* value = find(name);
  return value == nullptr ? fallback : value->flag();
}

const GgufValue& GgufFile::at(std::string_view name) const {
  if (const GgufValue* found = find(name)) return *found;
  fail(subject_, "has no ", name);
}

}  // namespace heed::io::detail
