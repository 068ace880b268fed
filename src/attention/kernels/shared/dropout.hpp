// The weights that dropout keeps, for a panel of keys at a time. The random numbers follow
// attention/problem/dropout.hpp, with sixteen or more blocks side by side. Philox is implemented again here,
// for two reasons: a target must share no inline function with code that runs on any processor
// (arguments.hpp), and this form can be vectorised. The tests compare both with a third implementation
// (naive_attention.hpp).
#pragma once

#include "attention/kernels/shared/pack.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr int kStreams = kPanel > 48 ? 32 : 16;

/// The Philox key of one head.
struct HeadBits {
  std::uint32_t key[2];
};

/// Computes Philox4x32-10 (Salmon et al. 2011) of kStreams counters, in place.
inline void philox_streams(std::uint32_t (&counter)[4][kStreams], std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kStreams; ++i) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0][i];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2][i];
      counter[0][i] = static_cast<std::uint32_t>(product1 >> 32) ^ counter[1][i] ^ key0;
      counter[2][i] = static_cast<std::uint32_t>(product0 >> 32) ^ counter[3][i] ^ key1;
      counter[1][i] = static_cast<std::uint32_t>(product1);
      counter[3][i] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

inline HeadBits bits_of_head(const cpu::Drop& drop, std::int64_t batch, std::int64_t head) {
  if (drop.threshold == 0) return {};
  std::uint32_t counter[4][kStreams] = {};
  counter[0][0] = static_cast<std::uint32_t>(drop.offset);
  counter[1][0] = static_cast<std::uint32_t>(drop.offset >> 32);
  counter[2][0] = static_cast<std::uint32_t>(batch + drop.place.batch_begin);
  counter[3][0] = static_cast<std::uint32_t>(head + drop.place.head_begin);
  philox_streams(counter, static_cast<std::uint32_t>(drop.seed), static_cast<std::uint32_t>(drop.seed >> 32));
  return {{counter[0][0], counter[1][0]}};
}

/// Computes the factors of row `index`'s weights for keys [key, key + kPanel), counted within the tensors: 0
/// or 1 / (1 - probability). A block of four words serves four neighbouring keys from a multiple of four on,
/// so a panel needs at most kPanel / 4 + 1 blocks.
inline void kept_weights(const cpu::Drop& drop, const HeadBits& bits, std::int64_t index, std::int64_t key,
                         float* keep) {
  static_assert(kPanel / 4 + 1 <= kStreams);
  std::uint32_t counter[4][kStreams];
  const std::int64_t row = drop.place.row(index);
  const std::int64_t first = key / 4;
  for (int i = 0; i < kStreams; ++i) {
    const auto four = static_cast<std::uint64_t>(first + i);
    counter[0][i] = static_cast<std::uint32_t>(four);
    counter[1][i] = static_cast<std::uint32_t>(four >> 32);
    counter[2][i] = static_cast<std::uint32_t>(row);
    counter[3][i] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(row) >> 32);
  }
  philox_streams(counter, bits.key[0], bits.key[1]);
  const std::int64_t skip = key % 4;
  for (std::int64_t k = 0; k < kPanel; ++k) {
    const std::int64_t at = skip + k;
    keep[k] = counter[at % 4][at / 4] < drop.threshold ? 0.0f : drop.keep_scale;
  }
}

}  // namespace heed::detail::HEED_ISA
