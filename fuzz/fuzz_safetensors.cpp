// Reads arbitrary bytes as a safetensors file. It is refused with Error (io), or it loads and agrees with a
// plain JSON reading of its header.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"

namespace {

using heed::fuzz::MemoryFile;
using heed::fuzz::require;

void check_against_json(const heed::io::SafetensorsReader& reader, const std::uint8_t* data) {
  std::uint64_t length = 0;
  for (unsigned i = 0; i < 8; ++i) length |= std::uint64_t{data[i]} << (8 * i);
  const auto json = nlohmann::json::parse(data + 8, data + 8 + length);  // throws if it is not JSON
  const std::vector<std::string> names = reader.names();
  require(json.size() == names.size() + json.count("__metadata__"));
  std::uint64_t at = 0;
  for (const std::string& name : names) {
    const auto& entry = json.at(name);
    require(entry.at("data_offsets").at(0) == at);
    at = entry.at("data_offsets").at(1);
    try {
      const heed::Tensor tensor = reader.read(name);
      const heed::Dims& shape = tensor.shape();
      require(entry.at("shape") == std::vector<std::int64_t>(shape.begin(), shape.end()));
    } catch (const heed::Error& error) {  // a type or rank that heed does not support
      require(error.code() == heed::ErrorCode::io);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  file.put(data, size);
  try {
    const heed::io::SafetensorsReader reader(file.path());
    check_against_json(reader, data);
  } catch (const heed::Error& error) {
    require(error.code() == heed::ErrorCode::io);
  }
  return 0;
}
