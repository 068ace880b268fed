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
  HEED_INLINE explicit RowBits(const std::uint64_t* words) {
    const __m512i row =
        _mm512_mullo_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi64(kWords));
#pragma GCC unroll 3
    for (std::size_t i = 0; i < kWords; ++i) {
      words_[0][i] = _mm512_i64gather_epi64(row, words + i, 8);
      words_[1][i] = _mm512_i64gather_epi64(row, words + 8 * kWords + i, 8);
    }
  }
  /// Takes the lowest bit of each row. Returns false if no row had one.
  HEED_INLINE bool take() {
    __m512i first, last;
    const unsigned of_first = take(words_[0], first);
    const unsigned of_last = take(words_[1], last);
    had_ = static_cast<Mask>(of_first | of_last << 8);
    place_ = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(first)),
                                _mm512_cvtepi64_epi32(last), 1);
    return had_ != 0;
  }
  /// For each row that had a bit, the float at its place in the row; `rest` for the others. Rows are `stride`
  /// floats apart.
  [[nodiscard]] HEED_INLINE Vf gather(const float* rows, std::int32_t stride, Vf rest) const {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i at = _mm512_add_epi32(place_, _mm512_mullo_epi32(lane, _mm512_set1_epi32(stride)));
    return _mm512_mask_i32gather_ps(rest, had_, at, rows, 4);
  }
  /// The numbers of the bits, plus `first`, as integers.
  [[nodiscard]] HEED_INLINE Vf places(std::int32_t first) const {
    return _mm512_castsi512_ps(_mm512_add_epi32(place_, _mm512_set1_epi32(first)));
  }

 private:
  using Words = __m512i[kWords];  // of eight rows

  HEED_INLINE static __mmask8 take(Words& words, __m512i& place) {
    const __m512i one = _mm512_set1_epi64(1);
    __m512i word = _mm512_setzero_si512(), before = _mm512_setzero_si512();
    __mmask8 had = 0;
#pragma GCC unroll 3
    for (std::size_t i = 0; i < kWords; ++i) {
      const __mmask8 here = _mm512_mask_test_epi64_mask(static_cast<__mmask8>(~had), words[i], words[i]);
      word = _mm512_mask_mov_epi64(word, here, words[i]);
      before = _mm512_mask_mov_epi64(before, here, _mm512_set1_epi64(static_cast<std::int64_t>(64 * i)));
      words[i] = _mm512_mask_and_epi64(words[i], here, words[i], _mm512_sub_epi64(words[i], one));
      had = static_cast<__mmask8>(had | here);
    }
    const __m512i lowest = _mm512_and_si512(word, _mm512_sub_epi64(_mm512_setzero_si512(), word));
    // The upper bits of a double hold its exponent + 1023.
    const __m512i exponent = _mm512_srli_epi64(_mm512_castpd_si512(_mm512_cvtepu64_pd(lowest)), 52);
    place = _mm512_add_epi64(before, _mm512_sub_epi64(exponent, _mm512_set1_epi64(1023)));
    return had;
  }

  Words words_[2];  // of the first and the last eight rows
  Mask had_ = 0;
  __m512i place_ = _mm512_setzero_si512();
};

/// Bits of kLanes rows and a pair of vectors. They are taken as RowBits takes them.
class PairBits {
 public:
  /// first, second [kLanes]: the bits of the rows' vectors.
  HEED_INLINE PairBits(const std::uint16_t* first, const std::uint16_t* second)
      : bits_(_mm512_or_si512(widened(first), _mm512_slli_epi32(widened(second), 16))) {}
  [[nodiscard]] HEED_INLINE bool any() const { return _mm512_test_epi32_mask(bits_, bits_) != 0; }
  /// Takes the lowest bit of each row. Returns false if no row had one.
  HEED_INLINE bool take() {
    had_ = _mm512_test_epi32_mask(bits_, bits_);
    const __m512i lowest = _mm512_and_si512(bits_, _mm512_sub_epi32(_mm512_setzero_si512(), bits_));
    bits_ = _mm512_xor_si512(bits_, lowest);
    // The upper bits of a float hold its exponent + 127.
    const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepu32_ps(lowest)), 23);
    place_ = _mm512_sub_epi32(exponent, _mm512_set1_epi32(127));
    return had_ != 0;
  }
  /// For each row that had a bit, the float at its place in the row; `rest` for the others. A row's vectors
  /// are `stride` floats apart, and the rows of each vector follow each other.
  [[nodiscard]] HEED_INLINE Vf gather(const float* rows, std::int32_t stride, Vf rest) const {
    const __m512i row =
        _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16, 0);
    const __m512i second = _mm512_and_si512(place_, _mm512_set1_epi32(16));
    const __m512i at = _mm512_add_epi32(_mm512_add_epi32(place_, row),
                                        _mm512_mullo_epi32(second, _mm512_set1_epi32(stride / 16 - 1)));
    return _mm512_mask_i32gather_ps(rest, had_, at, rows, 4);
  }
  [[nodiscard]] HEED_INLINE Vf places(std::int32_t first) const {
    return _mm512_castsi512_ps(_mm512_add_epi32(place_, _mm512_set1_epi32(first)));
  }

 private:
  HEED_INLINE static __m512i widened(const std::uint16_t* bits) {
    return _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(bits)));
  }
  __m512i bits_, place_ = _mm512_setzero_si512();
  Mask had_ = 0;
};

}  // namespace heed::detail::HEED_ISA
