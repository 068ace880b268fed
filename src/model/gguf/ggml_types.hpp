// ggml's tensor types: their numbers in GGUF files, their names, and the formats that heed reads.
#pragma once

#include <cstdint>
#include <string>

#include "model/files/weight_format.hpp"

namespace heed::detail {

/// The format of a type; nullptr for types that heed does not read.
[[nodiscard]] const WeightFormat* format_of_ggml_type(std::uint32_t type);

/// "Q4_1"; "number 99" for a number that ggml does not use.
[[nodiscard]] std::string name_of_ggml_type(std::uint32_t type);

/// The names of all types that heed reads: "F32, F16, … and BF16".
[[nodiscard]] std::string readable_ggml_types();

}  // namespace heed::detail
