// The choice of the weights that dropout drops. It is a function of (seed, offset, batch, head, i, j) alone,
// and the same for every kernel, tiling and number of threads.
//
//   head key    k = first two words of philox(counter = (offset, batch, head), key = seed)
//   four keys   x = philox(counter = (floor(j / 4), i), key = k)      64 bits each of j / 4 and i
//   weight ij   dropped where x[j mod 4] < round(probability * 2^32)
//
// So one block serves four neighbouring keys. i and j are indices of the tensors, not of a packed segment. If
// the call is a part, batch, head and i count within the whole call. Words are stored low half first.
#pragma once

#include <cstdint>

#include "attention/problem/mask_source.hpp"
#include "attention/problem/philox.hpp"
#include "heed/attention/attention.hpp"

namespace heed::detail {

struct PlacedDropout : Dropout {
  PartPlace place{};
};

class HeadDropout {
 public:
  HeadDropout(const PlacedDropout& dropout, std::int64_t batch, std::int64_t head)
      : place_(dropout.place),
        threshold_(threshold(dropout.probability)),
        keep_scale_(1 / (1 - dropout.probability)) {
    const PhiloxBlock block = philox({low_word(dropout.offset), high_word(dropout.offset),
                                      static_cast<std::uint32_t>(batch + place_.batch_begin),
                                      static_cast<std::uint32_t>(head + place_.head_begin)},
                                     {low_word(dropout.seed), high_word(dropout.seed)});
    key_ = {block[0], block[1]};
  }

  [[nodiscard]] bool drops(std::int64_t i, std::int64_t j) const {
    if (threshold_ == 0) return false;
    const auto row = static_cast<std::uint64_t>(place_.row(i));
    const auto four = static_cast<std::uint64_t>(j) / 4;
    const PhiloxBlock block = philox({low_word(four), high_word(four), low_word(row), high_word(row)}, key_);
    return block[static_cast<std::size_t>(j % 4)] < threshold_;
  }

  /// The factor of kept weights, 1 / (1 - probability).
  [[nodiscard]] double keep_scale() const { return keep_scale_; }

  /// round(probability * 2^32), at most 2^32 - 1.
  [[nodiscard]] static std::uint32_t threshold(double probability) {
    const double scaled = probability * 0x1p32 + 0.5;
    return scaled >= 0x1p32 ? 0xffffffffu : static_cast<std::uint32_t>(scaled);
  }

 private:
  PartPlace place_;
  PhiloxKey key_{};
  std::uint32_t threshold_;
  double keep_scale_;
};

}  // namespace heed::detail
