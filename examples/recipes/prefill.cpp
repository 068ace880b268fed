// Prefill: causal attention over a whole prompt, with the most attended keys of each row.
#include <cstdint>
#include <cstdio>
#include <heed/attention.hpp>
#include <heed/random.hpp>

int main() {
  heed::Generator generator(123);
  const heed::Tensor query = heed::randn(generator, {1, 8, 6, 24});  // [B, H, Lq, D]
  const heed::Tensor key = heed::randn(generator, {1, 2, 6, 24});    // [B, Hkv, Lk, D]: 4 heads share each
  const heed::Tensor value = heed::randn(generator, {1, 2, 6, 28});  // [B, Hkv, Lk, Dv]

  const auto result = heed::attention(query, key, value, {.causal = true, .top_k = 2});

  std::printf("output %s\n", heed::to_string(result.output.shape()).c_str());
  for (std::int64_t row = 1; row < query.size(2); ++row)
    std::printf("query %d of head 0 gives %.2f of its weight to key %d\n", static_cast<int>(row),
                result.top_k_weight.at<float>(0, 0, row, 0),
                static_cast<int>(result.top_k_index.at<std::int64_t>(0, 0, row, 0)));
}
