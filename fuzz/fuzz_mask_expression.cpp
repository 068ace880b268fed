// Parses arbitrary text as expressions of masks and of scores. Either Error (invalid_argument) is thrown, or
// rows can be computed and agree with tiles.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/masks/mask_part.hpp"
#include "choices.hpp"
#include "fuzz_support.hpp"
#include "heed/attention/masks.hpp"
#include "heed/attention/score_mod.hpp"
#include "heed/error.hpp"

namespace {

using heed::detail::Coverage;
using heed::detail::MaskTile;
using heed::fuzz::require;

constexpr std::int64_t kQueries = 24, kKeys = 40;

// Memory of exactly the needed size, so that the sanitizer sees any access outside it.
using Bytes = std::vector<std::uint8_t>;

class Arrays {
 public:
  explicit Arrays(heed::fuzz::Choices& bytes)
      : document_(heed::Dims{kKeys}, heed::DType::i32),
        weights_(heed::Dims{kKeys}, heed::DType::f64),
        keep_(heed::Dims{kKeys}, heed::DType::boolean),
        heads_(heed::Dims{2}, heed::DType::f32) {
    for (std::int64_t n = 0; n < kKeys; ++n) {
      document_.at<std::int32_t>(n) = bytes.integer(0, 3);
      weights_.at<double>(n) = n == 7 && bytes.boolean() ? NAN : bytes.integer(-8, 8) / 4.0;
      keep_.at<bool>(n) = bytes.boolean();
    }
    heads_.at<float>(1) = 2;
  }
  [[nodiscard]] std::vector<std::pair<std::string, heed::TensorView>> all() const {
    return {{"doc", document_}, {"w", weights_}, {"keep", keep_}, {"heads", heads_}};
  }

 private:
  heed::Tensor document_, weights_, keep_, heads_;
};

Bytes row_of(const heed::detail::MaskPart& part, std::int64_t batch, std::int64_t head, std::int64_t row,
             std::int64_t begin, std::int64_t end) {
  Bytes visible(static_cast<std::size_t>(end - begin), 1);
  part.restrict_row({batch, head, row, row + 1, begin, end}, visible.data());
  return visible;
}

void check_tile(const heed::detail::MaskPart& part, const MaskTile& tile) {
  const Coverage coverage = part.coverage(tile);
  for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row)
    for (const std::uint8_t visible :
         row_of(part, tile.batch, tile.head, row, tile.key_begin, tile.key_end)) {
      require(visible <= 1);
      require(coverage == Coverage::cut || (coverage == Coverage::full) == (visible == 1));
    }
}

void check_mask(std::string_view text, const Arrays& arrays, heed::fuzz::Choices& bytes) {
  const heed::SparseMask mask = heed::SparseMask::expression(text, kQueries, kKeys, arrays.all());
  const heed::detail::MaskPart& part = *mask.parts()[0];
  for (int n = 0; n < 4; ++n) {
    MaskTile tile{};
    tile.batch = bytes.integer<std::int64_t>(0, mask.batch() - 1);
    tile.head = bytes.integer<std::int64_t>(0, mask.heads() - 1);
    tile.row_begin = bytes.integer<std::int64_t>(0, kQueries - 1);
    tile.row_end = bytes.integer<std::int64_t>(tile.row_begin + 1, kQueries);
    tile.key_begin = bytes.integer<std::int64_t>(0, kKeys - 1);
    tile.key_end = bytes.integer<std::int64_t>(tile.key_begin + 1, kKeys);
    check_tile(part, tile);
  }
}

void check_score(std::string_view text, const Arrays& arrays, heed::fuzz::Choices& bytes) {
  const heed::ScoreMod mod = heed::ScoreMod::expression(text, arrays.all());
  mod.part()->check(2, 2, kQueries, kKeys);
  const heed::ScoreRow where{1, bytes.integer<std::int64_t>(0, 1),
                             bytes.integer<std::int64_t>(0, kQueries - 1), 3, kKeys};
  std::vector<double> scores, slopes(kKeys - 3);
  for (std::int64_t j = 3; j < kKeys; ++j) scores.push_back(bytes.integer(-40, 40) / 8.0);
  std::vector<double> alone = scores;
  mod.part()->apply(where, scores.data(), slopes.data());
  mod.part()->apply(where, alone.data(), nullptr);
  for (std::size_t k = 0; k < scores.size(); ++k) {
    require(scores[k] == alone[k] || (std::isnan(scores[k]) && std::isnan(alone[k])));
    require(scores[k] != -INFINITY || slopes[k] == 0);
  }
}

// Runs a check; only Error (invalid_argument) may be thrown.
template <class Check>
void try_to(const Check& check) {
  try {
    check();
  } catch (const heed::Error& error) {
    require(error.code() == heed::ErrorCode::invalid_argument);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The bytes of the text also choose the numbers.
  heed::fuzz::Choices bytes(data, size);
  const Arrays arrays(bytes);
  try_to([&] { check_mask(text, arrays, bytes); });
  try_to([&] { check_score(text, arrays, bytes); });
  return 0;
}
