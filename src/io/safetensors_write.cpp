#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "core/message.hpp"
#include "heed/io/tensors.hpp"
#include "io/atomic_file.hpp"
#include "io/fault.hpp"
#include "io/safetensors_header.hpp"

namespace heed::io {
namespace {

// Aligns the data to a cache line, so that a program can compute directly on the mapped file.
constexpr std::size_t kDataAlignment = 64;

using Named = std::pair<std::string, TensorView>;

template <class... Parts>
[[noreturn]] void fail_call(const std::string& path, const Parts&... what) {
  heed::detail::refuse("cannot write '", path, "': ", what...);
}

// Text as a quoted JSON string. Refuses text that the reader would refuse.
std::string json_string(const std::string& path, const std::string& text) {
  try {
    std::string result = nlohmann::json(text).dump();
    if (result.size() - 2 > detail::kMaxStringBytes)
      fail_call(path, "a name or text of metadata has ", result.size() - 2, " bytes; at most ",
                detail::kMaxStringBytes, " are expected");
    return result;
  } catch (const nlohmann::json::exception&) {
    fail_call(path, "the name or text of metadata ", detail::printable(text), " is not UTF-8");
  }
}

void check_names(const std::string& path, const std::vector<Named>& tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (name == detail::kMetadataKey) fail_call(path, "no tensor can be named '__metadata__'");
    if (!names.insert(name).second) fail_call(path, "two tensors are named ", detail::printable(name));
  }
  if (tensors.size() > detail::kMaxTensors)
    fail_call(path, tensors.size(), " tensors were given; at most ", detail::kMaxTensors, " are expected");
}

std::uint64_t byte_count(const TensorView& tensor) {
  return static_cast<std::uint64_t>(tensor.count()) * size_of(tensor.dtype());
}

// Sorts by element width, widest first, and keeps the given order otherwise. The format allows no gaps, so
// this aligns each tensor to its element size. (The official writer sorts by type and then by name for the
// same reason; the given order is more informative.)
std::vector<const Named*> order_of_data(const std::vector<Named>& tensors) {
  std::vector<const Named*> order;
  for (const Named& named : tensors) order.push_back(&named);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const Named* named) { return size_of(named->second.dtype()); });
  return order;
}

std::string header_text(const std::string& path, const std::vector<const Named*>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    if (metadata.size() > detail::kMaxMetadataEntries)
      fail_call(path, metadata.size(), " entries of metadata were given; at most ",
                detail::kMaxMetadataEntries, " are expected");
    text += json_string(path, std::string(detail::kMetadataKey)) + ":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += json_string(path, key) + ":" + json_string(path, value);
    }
    text += '}';
  }
  std::uint64_t at = 0;
  for (const Named* named : order) {
    const auto& [name, tensor] = *named;
    if (text.size() > 1) text += ',';
    text += json_string(path, name) + ":{\"dtype\":\"" +
            std::string(detail::stored_type_of(tensor.dtype()).name) +
            "\",\"shape\":" + to_string(tensor.shape()) + ",\"data_offsets\":[" + std::to_string(at) + ",";
    at += byte_count(tensor);
    text += std::to_string(at) + "]}";
  }
  text += '}';
  const std::size_t unpadded = detail::kHeaderLengthBytes + text.size();
  text.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  if (text.size() > detail::kMaxHeaderBytes)
    fail_call(path, "its header would have ", text.size(), " bytes; at most ", detail::kMaxHeaderBytes,
              " are expected");
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<Named>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_names(path, tensors);
  const std::vector<const Named*> order = order_of_data(tensors);
  const std::string header = header_text(path, order, metadata);

  detail::AtomicFile file(path);
  std::string length;
  for (std::size_t i = 0; i < detail::kHeaderLengthBytes; ++i)
    length += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  file.write(std::as_bytes(std::span(length)));
  file.write(std::as_bytes(std::span(header)));
  for (const Named* named : order) {
    const TensorView& tensor = named->second;
    // A view of bools may have any byte; a copy has only 0 and 1.
    const bool as_it_is = tensor.is_contiguous() && tensor.dtype() != DType::boolean;
    const Tensor copied = as_it_is ? Tensor() : Tensor::copy_of(tensor);
    const void* data = as_it_is ? tensor.data() : copied.view().data();
    file.write({static_cast<const std::byte*>(data), static_cast<std::size_t>(byte_count(tensor))});
  }
  file.commit();
}

}  // namespace heed::io
