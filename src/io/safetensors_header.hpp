// The header of a safetensors file: JSON with the location of each tensor.
//
// A file consists of the header's length (8 bytes, little endian), the header, and the data. The header is
// one object,
//   {"__metadata__": {"free": "text"}, "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
// and the offsets count from the first byte of the data, which the tensors cover without gaps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"
#include "io/random_access_file.hpp"

namespace heed::io::detail {

/// The official reader's own limit.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::uint64_t kHeaderLengthBytes = 8;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// These three limits bound the cost of a header before it is refused: its entries and the JSON reader's
/// buffers stay below 16 MiB plus the file's size. The largest models have about ten thousand tensors per
/// file.
inline constexpr std::size_t kMaxTensors = 65536;
inline constexpr std::size_t kMaxMetadataEntries = 16384;
inline constexpr std::size_t kMaxStringBytes = std::size_t{1} << 20;

/// An element type of the format. A file may have types without a DType; such tensors cannot be read.
struct StoredType {
  std::string_view name;
  unsigned bits = 0;
  std::optional<DType> dtype;
};
[[nodiscard]] const StoredType* stored_type_named(std::string_view name);
[[nodiscard]] const StoredType& stored_type_of(DType dtype);

struct StoredTensor {
  std::string name;
  const StoredType* type = nullptr;
  Dims shape;  ///< the first kMaxRank axes
  std::size_t rank = 0;
  std::uint64_t begin = 0;  ///< offset from the first byte of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;   ///< in the order of their data
  std::vector<std::uint32_t> by_name;  ///< indices into `tensors`, sorted by name
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  ///< offset from the first byte of the file
};

/// Reads and checks the header: all checks of the official reader, and that no name occurs twice. Throws
/// Error (io).
[[nodiscard]] HEED_API SafetensorsHeader read_safetensors_header(const RandomAccessFile& file);

}  // namespace heed::io::detail
