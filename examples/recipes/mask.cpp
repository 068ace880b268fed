// Masks of one's own: a named mask, a condition in words, a compiled function, and a change of the scores.
#include <cstdint>
#include <cstdio>
#include <heed/attention.hpp>
#include <heed/random.hpp>

int main() {
  constexpr std::int64_t kLength = 8;
  const std::int64_t documents[] = {5, 3};  // two documents in one row of tokens
  const auto named = heed::masks::documents(documents, true);
  const auto condition = heed::SparseMask::expression("j <= i && (j < 2 || i - j < 3)", kLength, kLength);
  const auto every_second = [](std::int64_t /*b*/, std::int64_t h, std::int64_t i, std::int64_t j) {
    return h == 0 || i % 2 == j % 2;  // batch entry, query head, query, key
  };
  const auto function = heed::mask_mod(every_second, 1, 2, kLength, kLength);  // batch, heads, Lq, Lk
  const auto mask = named & condition & function;
  for (std::int64_t i = 0; i < kLength; ++i) {
    for (std::int64_t j = 0; j < kLength; ++j) std::printf("%c", mask.allows(0, 1, i, j) ? '#' : '.');
    std::printf("\n");
  }

  heed::Generator generator(123);
  const heed::Tensor query = heed::randn(generator, {1, 2, kLength, 16});
  const heed::Tensor key = heed::randn(generator, {1, 2, kLength, 16});
  const heed::Tensor value = heed::randn(generator, {1, 2, kLength, 16});
  const auto nearer = heed::ScoreMod::function(  // s is the score; b, h, i, j as above
      [](auto s, std::int64_t /*b*/, std::int64_t /*h*/, std::int64_t i, std::int64_t j) {
        return s - 0.1f * static_cast<float>(i - j);
      });
  heed::AttentionOptions options{.sparse_mask = mask, .score_mod = nearer};
  options.need = heed::Need::weights | heed::Need::masked_mass;
  const auto result = heed::attention(query, key, value, options);
  std::printf("query 7 of head 1 gives %.2f to key 5; the forbidden keys would have %.2f\n",
              result.weights.at<float>(0, 1, 7, 5), result.masked_mass.at<float>(0, 1, 7));
}
