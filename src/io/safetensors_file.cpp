#include "io/safetensors_file.hpp"

#include <algorithm>

#include "io/fault.hpp"

namespace heed::io::detail {

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file(path), header(read_safetensors_header(file)) {}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto name_of_index = [&](std::uint32_t i) -> const std::string& { return header.tensors[i].name; };
  const auto found = std::ranges::lower_bound(header.by_name, name, {}, name_of_index);
  if (found == header.by_name.end() || name_of_index(*found) != name) return nullptr;
  return &header.tensors[*found];
}

const StoredTensor& SafetensorsFile::readable(const std::string& name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) fail(file.subject(), "has no tensor ", printable(name), "; ", what_it_has());
  require_readable(*tensor);
  return *tensor;
}

void SafetensorsFile::require_readable(const StoredTensor& tensor) const {
  if (!tensor.type->dtype)
    fail(file.subject(), "has a tensor ", printable(tensor.name), " of ", tensor.type->name,
         "; F64, F32, F16, BF16, I64, I32, U8 or BOOL is expected");
  if (tensor.rank > static_cast<std::size_t>(kMaxRank))
    fail(file.subject(), "has a tensor ", printable(tensor.name), " of ", tensor.rank, " axes; at most ",
         kMaxRank, " are supported");
}

std::string SafetensorsFile::what_it_has() const {
  constexpr std::size_t kMaxNames = 20;
  if (header.tensors.empty()) return "it has none";
  std::string text = "it has ";
  for (std::size_t i = 0; i < std::min(kMaxNames, header.tensors.size()); ++i)
    text += (i > 0 ? ", " : "") + printable(header.tensors[i].name);
  if (header.tensors.size() > kMaxNames)
    text += " and " + std::to_string(header.tensors.size() - kMaxNames) + " more";
  return text;
}

}  // namespace heed::io::detail
