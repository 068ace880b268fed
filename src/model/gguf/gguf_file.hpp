// GGUF, versions 2 and 3: ggml's model format, little-endian. A file has named metadata values, named tensors
// with shapes, and their data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.hpp"

namespace heed::io::detail {

/// A metadata value, read in place. Accessors for a kind other than the value's throw Error (io): "'m.gguf'
/// has general.alignment that is not a whole number".
class GgufValue {
 public:
  enum class Kind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };

  GgufValue() = default;
  GgufValue(std::string where, Kind kind, const std::byte* data, std::uint64_t count, bool list)
      : where_(std::move(where)), kind_(kind), data_(data), count_(count), list_(list) {}

  [[nodiscard]] std::int64_t integer() const;  ///< at most 2^63 - 1
  [[nodiscard]] double real() const;           ///< also accepts an integer
  [[nodiscard]] bool flag() const;
  [[nodiscard]] std::string_view text() const;
  [[nodiscard]] std::vector<std::string_view> texts() const;
  [[nodiscard]] std::vector<std::int64_t> integers() const;
  [[nodiscard]] std::vector<double> reals() const;

 private:
  [[noreturn]] void fail(const char* what) const;
  void expect_list(bool list) const;
  [[nodiscard]] std::int64_t integer_at(const std::byte* at) const;
  [[nodiscard]] double real_at(const std::byte* at) const;
  template <class Read>
  [[nodiscard]] auto list_of(const char* what, Read read) const;

  std::string where_;  ///< "'m.gguf' has general.alignment"
  Kind kind_ = Kind::u8;
  const std::byte* data_ = nullptr;
  std::uint64_t count_ = 1;
  bool list_ = false;
};

/// A tensor; sizes are in the file's order, innermost first.
struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;
  std::vector<std::int64_t> sizes;  ///< 1 to 4 sizes, whose product is at most 2^63 - 1
  std::int64_t count = 0;
  std::uint64_t offset = 0;  ///< offset of its first byte in the file; less than the file's size
};

/// A mapped GGUF file. Counts, lengths, kinds and offsets are checked against its size before memory is
/// allocated.
class GgufFile {
 public:
  /// Throws Error (io) that names the file.
  explicit GgufFile(const std::string& path);

  [[nodiscard]] const std::string& subject() const noexcept { return subject_; }
  [[nodiscard]] const std::map<std::string, GgufValue, std::less<>>& metadata() const noexcept {
    return metadata_;
  }
  [[nodiscard]] const GgufValue* find(std::string_view name) const;
  /// Throws Error (io): "'m.gguf' has no general.architecture".
  [[nodiscard]] const GgufValue& at(std::string_view name) const;
  /// The value, or `fallback` if the file does not have it.
  [[nodiscard]] std::int64_t integer_or(std::string_view name, std::int64_t fallback) const;
  [[nodiscard]] double real_or(std::string_view name, double fallback) const;
  [[nodiscard]] bool flag_or(std::string_view name, bool fallback) const;
  [[nodiscard]] const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const std::byte* data() const noexcept { return memory_->data(); }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The mapping that keeps data() valid.
  [[nodiscard]] std::shared_ptr<const MappedFile> memory() const { return memory_; }

 private:
  std::string subject_;
  std::uint64_t size_ = 0;
  std::shared_ptr<const MappedFile> memory_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace heed::io::detail
