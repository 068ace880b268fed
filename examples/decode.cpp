// Decoding with a KV cache, printing what each step attends to.
//
// The program is a language model of one layer. Its weights are made by hand, so its attention can be read.
// Head 0 looks for the words that followed the current word before: the key of a position is the previous
// word. Head 1 looks for the word itself. The value of a position is its word. The next word is the one
// nearest to the output of head 0. ALiBi (Press et al. 2022) prefers nearby positions.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "heed/attention/kv_cache.hpp"
#include "heed/error.hpp"

namespace {

using heed::KvCache;
using heed::Tensor;

constexpr std::int64_t kHeads = 2, kDim = 16;

// Embeds a word as kDim numbers of 1 and -1: the bits of its FNV-1a hash.
std::vector<float> embed(std::string_view word) {
  std::uint32_t hash = 2166136261;
  for (const char letter : word) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619;
  std::vector<float> numbers;
  for (int c = 0; c < kDim; ++c) numbers.push_back((hash >> c & 1) == 1 ? 1.0f : -1.0f);
  return numbers;
}

void put(Tensor& rows, std::int64_t head, std::int64_t row, std::string_view word) {
  const std::vector<float> numbers = embed(word);
  for (std::int64_t c = 0; c < kDim; ++c)
    rows.at<float>(0, head, row, c) = numbers[static_cast<std::size_t>(c)];
}

// Appends the rows of words[begin] and all later words to the cache, as [1, heads, rows, D].
void append(KvCache& cache, const std::vector<std::string>& words, std::size_t begin) {
  const auto count = static_cast<std::int64_t>(words.size() - begin);
  Tensor key({1, kHeads, count, kDim}), value({1, kHeads, count, kDim});
  for (std::int64_t row = 0; row < count; ++row) {
    const std::size_t at = begin + static_cast<std::size_t>(row);
    put(key, 0, row, at == 0 ? "" : words[at - 1]);
    put(key, 1, row, words[at]);
    for (std::int64_t head = 0; head < kHeads; ++head) put(value, head, row, words[at]);
  }
  cache.append(key, value);
}

// Returns the attention of the last word, with its three largest weights.
heed::AttentionResult attend(const KvCache& cache, std::string_view word) {
  Tensor query({1, kHeads, 1, kDim}), slopes({kHeads});
  for (std::int64_t head = 0; head < kHeads; ++head) {
    put(query, head, 0, word);
    slopes.at<float>(head) = 0.125f;
  }
  heed::AttentionOptions options;
  options.scale = 0.5;
  options.alibi_slopes = slopes.view();
  options.top_k = 3;
  return heed::attention(query, cache, options);
}

void print_attended(const heed::AttentionResult& result, std::int64_t head,
                    const std::vector<std::string>& words) {
  for (std::int64_t k = 0; k < 3; ++k) {
    const auto position = result.top_k_index.at<std::int64_t>(0, head, 0, k);
    std::printf("  %2d %-4s%.3f", static_cast<int>(position),
                words[static_cast<std::size_t>(position)].c_str(),
                static_cast<double>(result.top_k_weight.at<float>(0, head, 0, k)));
  }
  std::printf("\n");
}

// Returns the word that is nearest to the output of head 0.
std::string next_word(const Tensor& output, const std::vector<std::string>& words) {
  std::string nearest;
  float most = -1e30f;
  for (const std::string& word : words) {
    const std::vector<float> numbers = embed(word);
    float product = 0;
    for (std::int64_t c = 0; c < kDim; ++c)
      product += output.at<float>(0, 0, 0, c) * numbers[static_cast<std::size_t>(c)];
    if (product > most) {
      most = product;
      nearest = word;
    }
  }
  return nearest;
}

void decode() {
  std::vector<std::string> words{"the", "cat", "sat", "on", "the", "mat", "and", "the"};
  heed::KvCacheOptions options;
  options.kv_heads = kHeads;
  options.head_dim = kDim;
  options.layout = heed::CacheLayout::paged;
  options.capacity = 32;
  options.page_size = 4;
  KvCache cache(options);
  append(cache, words, 0);  // the whole prompt at once
  for (int step = 0; step < 6; ++step) {
    const heed::AttentionResult result = attend(cache, words.back());
    std::printf("position %d, \"%s\"\n", static_cast<int>(words.size() - 1), words.back().c_str());
    std::printf("  followed it:");
    print_attended(result, 0, words);
    std::printf("  is the same:");
    print_attended(result, 1, words);
    words.push_back(next_word(result.output, words));
    std::printf("  next word: %s\n", words.back().c_str());
    append(cache, words, words.size() - 1);  // one row per step
  }
  const heed::KvCacheStats stats = cache.stats();
  std::printf("the cache holds %d rows in %d of %d pages\n", static_cast<int>(stats.rows),
              static_cast<int>(stats.pages - stats.free_pages), static_cast<int>(stats.pages));
}

}  // namespace

int main() {
  try {
    decode();
  } catch (const heed::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
