// Bits of kLanes rows, taken one by one from all rows at once, by AVX-512. It has been measured on
// Intel's processors alone.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define HEED_ROW_BITS

namespace heed::detail::HEED_ISA {

/// The bits of a row are kWords words.
template <std::size_t kWords>
class RowBits {
 public:
  /// `words` [kLanes][kWords]
  HEED_INLINE explicit RowBits(const std::uint32_t* words) {
    const __m512i row = _mm512_mullo_epi32(lanes(), _mm512_set1_epi32(kWords));
#pragma GCC unroll 6
    for (std::size_t i = 0; i < kWords; ++i) words_[i] = _mm512_i32gather_epi32(row, words + i, 4);
  }
  /// first, second [kLanes]: the two halves of the only word of each row.
  HEED_INLINE RowBits(const std::uint16_t* first, const std::uint16_t* second) {
    static_assert(kWords == 1);
    words_[0] = _mm512_or_si512(widened(first), _mm512_slli_epi32(widened(second), 16));
  }
  [[nodiscard]] HEED_INLINE bool any() const {
    __m512i all = words_[0];
#pragma GCC unroll 6
    for (std::size_t i = 1; i < kWords; ++i) all = _mm512_or_si512(all, words_[i]);
    return _mm512_test_epi32_mask(all, all) != 0;
  }
  /// Takes the lowest bit of each row. Returns false if no row had one.
  HEED_INLINE bool take() {
    __m512i word = words_[0], before = _mm512_set1_epi32(-127);
    had_ = _mm512_test_epi32_mask(word, word);
    words_[0] = _mm512_mask_and_epi32(word, had_, word, _mm512_sub_epi32(word, _mm512_set1_epi32(1)));
#pragma GCC unroll 6
    for (std::size_t i = 1; i < kWords; ++i) {
      const Mask here = _mm512_mask_test_epi32_mask(static_cast<Mask>(~had_), words_[i], words_[i]);
      word = _mm512_mask_mov_epi32(word, here, words_[i]);
      before = _mm512_mask_mov_epi32(before, here, _mm512_set1_epi32(static_cast<int>(32 * i) - 127));
      words_[i] = _mm512_mask_and_epi32(words_[i], here, words_[i],
                                        _mm512_sub_epi32(words_[i], _mm512_set1_epi32(1)));
      had_ = static_cast<Mask>(had_ | here);
    }
    const __m512i lowest = _mm512_and_si512(word, _mm512_sub_epi32(_mm512_setzero_si512(), word));
    // The upper bits of a float hold its exponent + 127.
    place_ = _mm512_add_epi32(before, _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepu32_ps(lowest)), 23));
    return had_ != 0;
  }
  /// For each row that had a bit, the float at its place in the row; `rest` for the others. Rows are
  /// `row_stride` floats apart, and a row's vectors `vector_stride`.
  [[nodiscard]] HEED_INLINE Vf gather(const float* rows, std::int32_t row_stride, std::int32_t vector_stride,
                                      Vf rest) const {
    const __m512i further =
        _mm512_mullo_epi32(_mm512_srli_epi32(place_, 4), _mm512_set1_epi32(vector_stride - 16));
    const __m512i row = _mm512_mullo_epi32(lanes(), _mm512_set1_epi32(row_stride));
    return _mm512_mask_i32gather_ps(rest, had_, _mm512_add_epi32(_mm512_add_epi32(place_, row), further),
                                    rows, 4);
  }
  /// The numbers of the bits, plus `first`, as integers.
  [[nodiscard]] HEED_INLINE Vf places(std::int32_t first) const {
    return _mm512_castsi512_ps(_mm512_add_epi32(place_, _mm512_set1_epi32(first)));
  }

 private:
  HEED_INLINE static __m512i lanes() {
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  }
  HEED_INLINE static __m512i widened(const std::uint16_t* bits) {
    return _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(bits)));
  }

  __m512i words_[kWords];
  Mask had_ = 0;
  __m512i place_ = _mm512_setzero_si512();
};

}  // namespace heed::detail::HEED_ISA
