#include <utility>

#include "heed/io/tensors.hpp"
#include "io/safetensors_file.hpp"

namespace heed::io {

using detail::StoredTensor;

struct SafetensorsReader::Impl : detail::SafetensorsFile {
  using SafetensorsFile::SafetensorsFile;

  [[nodiscard]] Tensor read(const StoredTensor& stored) const {
    require_readable(stored);
    Tensor tensor = Tensor::uninitialized(stored.shape, *stored.type->dtype);
    const std::span<std::byte> bytes(static_cast<std::byte*>(tensor.mutable_view().data()),
                                     stored.end - stored.begin);
    file.read(header.data_begin + stored.begin, bytes);
    // A file may hold any byte; a bool in memory must be 0 or 1.
    if (tensor.dtype() == DType::boolean)
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(byte != std::byte{0} ? 1 : 0);
    return tensor;
  }
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
