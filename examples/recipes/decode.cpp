// Decoding: two sequences share the pages of a prompt, then each grows by a token a step.
#include <cstdio>
#include <heed/attention.hpp>
#include <heed/random.hpp>

int main() {
  heed::Generator generator(123);
  heed::KvCache cache({.sequences = 1,
                       .kv_heads = 2,
                       .head_dim = 24,
                       .format = heed::CacheFormat::bf16,
                       .layout = heed::CacheLayout::paged,
                       .capacity = 64,  // rows, in pages of 4
                       .page_size = 4});
  const heed::Tensor key = heed::randn(generator, {1, 2, 10, 24});
  const heed::Tensor value = heed::randn(generator, {1, 2, 10, 24});
  cache.append(key, value);  // the prompt
  cache.fork(0);             // makes sequence 1

  for (int step = 0; step < 3; ++step) {
    const heed::Tensor new_key = heed::randn(generator, {2, 2, 1, 24});
    const heed::Tensor new_value = heed::randn(generator, {2, 2, 1, 24});
    cache.append(new_key, new_value);
    const heed::Tensor query = heed::randn(generator, {2, 8, 1, 24});  // [B, H, 1, D]
    const auto result = heed::attention(query, cache, {.need = heed::Need::entropy});
    std::printf("step %d: output %s, %d keys, entropy %.2f nats\n", step,
                heed::to_string(result.output.shape()).c_str(), static_cast<int>(cache.rows(0)),
                result.entropy.at<float>(0, 0, 0));
  }
  const heed::KvCacheStats stats = cache.stats();
  std::printf("%d rows in %d pages, of which both sequences hold %d\n", static_cast<int>(stats.rows),
              static_cast<int>(stats.pages - stats.free_pages), static_cast<int>(stats.shared_pages));
}
