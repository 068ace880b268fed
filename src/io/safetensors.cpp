#include <algorithm>
#include <utility>

#include "heed/io.hpp"
#include "io/fault.hpp"
#include "io/random_access_file.hpp"
#include "io/safetensors_header.hpp"

namespace heed::io {

using detail::fail;
using detail::printable;
using detail::StoredTensor;

struct SafetensorsReader::Impl {
  explicit Impl(const std::string& path) : file(path), header(detail::read_safetensors_header(file)) {}

  [[nodiscard]] const StoredTensor* find(const std::string& name) const {
    const auto name_of_index = [&](std::uint32_t i) -> const std::string& { return header.tensors[i].name; };
    const auto found = std::ranges::lower_bound(header.by_name, name, {}, name_of_index);
    if (found == header.by_name.end() || name_of_index(*found) != name) return nullptr;
    return &header.tensors[*found];
  }

  /// The tensor of that name, of a dtype and rank that heed has.
  [[nodiscard]] const StoredTensor& readable(const std::string& name) const {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr) fail(file.subject(), "has no tensor " + printable(name) + "; " + what_it_has());
    require_readable(*tensor);
    return *tensor;
  }

  void require_readable(const StoredTensor& tensor) const {
    if (!tensor.type->dtype)
      fail(file.subject(), "has a tensor " + printable(tensor.name) + " of " +
                               std::string(tensor.type->name) +
                               "; F64, F32, F16, BF16, I64, I32, U8 or BOOL is expected");
    if (tensor.rank > static_cast<std::size_t>(kMaxRank))
      fail(file.subject(), "has a tensor " + printable(tensor.name) + " of " + std::to_string(tensor.rank) +
                               " axes; at most " + std::to_string(kMaxRank) + " are supported");
  }

  [[nodiscard]] std::string what_it_has() const {
    constexpr std::size_t kMostNames = 20;
    if (header.tensors.empty()) return "it has none";
    std::string text = "it has ";
    for (std::size_t i = 0; i < std::min(kMostNames, header.tensors.size()); ++i)
      text += (i > 0 ? ", " : "") + printable(header.tensors[i].name);
    if (header.tensors.size() > kMostNames)
      text += " and " + std::to_string(header.tensors.size() - kMostNames) + " more";
    return text;
  }

  [[nodiscard]] Tensor read(const StoredTensor& stored) const {
    require_readable(stored);
    Tensor tensor = Tensor::uninitialized(stored.shape, *stored.type->dtype);
    const std::span<std::byte> bytes(static_cast<std::byte*>(tensor.mutable_view().data()),
                                     stored.end - stored.begin);
    file.read(header.data_begin + stored.begin, bytes);
    // Any byte may stand in a file; in memory a bool is 0 or 1.
    if (tensor.dtype() == DType::boolean)
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(byte != std::byte{0} ? 1 : 0);
    return tensor;
  }

  detail::RandomAccessFile file;
  detail::SafetensorsHeader header;
};

SafetensorsReader::SafetensorsReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  names.reserve(impl_->header.tensors.size());
  for (const StoredTensor& tensor : impl_->header.tensors) names.push_back(tensor.name);
  return names;
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return impl_->header.metadata;
}
bool SafetensorsReader::contains(const std::string& name) const { return impl_->find(name) != nullptr; }
DType SafetensorsReader::dtype(const std::string& name) const { return *impl_->readable(name).type->dtype; }
Dims SafetensorsReader::shape(const std::string& name) const { return impl_->readable(name).shape; }
Tensor SafetensorsReader::read(const std::string& name) const { return impl_->read(impl_->readable(name)); }

TensorFile read_safetensors(const std::string& path) {
  const SafetensorsReader reader(path);
  TensorFile file;
  for (std::string& name : reader.names()) {
    Tensor tensor = reader.read(name);
    file.tensors.emplace_back(std::move(name), std::move(tensor));
  }
  file.metadata = reader.metadata();
  return file;
}

}  // namespace heed::io
