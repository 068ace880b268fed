#include "model/gguf/ggml_types.hpp"

#include <algorithm>
#include <array>

#include "model/files/weight_format.hpp"

namespace heed::detail {
namespace {

struct GgmlType {
  std::uint32_t number;
  const char* name;
  const WeightFormat* format;  ///< nullptr: not read
};

constexpr std::array<GgmlType, 34> kTypes = {{
    {0, "F32", &kStoredF32},       {1, "F16", &kStoredF16},      {2, "Q4_0", &kStoredQ4_0},
    {3, "Q4_1", &kStoredQ4_1},     {6, "Q5_0", &kStoredQ5_0},    {7, "Q5_1", &kStoredQ5_1},
    {8, "Q8_0", &kStoredQ8_0},     {9, "Q8_1", nullptr},         {10, "Q2_K", &kStoredQ2K},
    {11, "Q3_K", &kStoredQ3K},     {12, "Q4_K", &kStoredQ4K},    {13, "Q5_K", &kStoredQ5K},
    {14, "Q6_K", &kStoredQ6K},     {15, "Q8_K", nullptr},        {16, "IQ2_XXS", nullptr},
    {17, "IQ2_XS", nullptr},       {18, "IQ3_XXS", nullptr},     {19, "IQ1_S", nullptr},
    {20, "IQ4_NL", &kStoredIq4Nl}, {21, "IQ3_S", nullptr},       {22, "IQ2_S", nullptr},
    {23, "IQ4_XS", &kStoredIq4Xs}, {24, "I8", nullptr},          {25, "I16", nullptr},
    {26, "I32", nullptr},          {27, "I64", nullptr},         {28, "F64", nullptr},
    {29, "IQ1_M", nullptr},        {30, "BF16", &kStoredBf16},   {34, "TQ1_0", nullptr},
    {35, "TQ2_0", nullptr},        {39, "MXFP4", &kStoredMxfp4}, {40, "NVFP4", nullptr},
    {41, "Q1_0", nullptr},
}};

const GgmlType* type_numbered(std::uint32_t number) {
  const auto* found = std::ranges::find(kTypes, number, &GgmlType::number);
  return found == kTypes.end() ? nullptr : found;
}

}  // namespace

const WeightFormat* format_of_ggml_type(std::uint32_t type) {
  const GgmlType* found = type_numbered(type);
  return found == nullptr ? nullptr : found->format;
}

std::string name_of_ggml_type(std::uint32_t type) {
  const GgmlType* found = type_numbered(type);
  return found == nullptr ? "number " + std::to_string(type) : found->name;
}

std::string readable_ggml_types() {
  std::string names, last;
  for (const GgmlType& one : kTypes) {
    if (one.format == nullptr) continue;
    if (!last.empty()) names += (names.empty() ? "" : ", ") + last;
    last = one.name;
  }
  return names + " and " + last;
}

}  // namespace heed::detail
