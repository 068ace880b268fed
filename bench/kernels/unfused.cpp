// Attention written by hand with a BLAS. For each head: the product of queries and keys, a softmax over its
// rows, and the product of weights and values. bench/peers compares heed with it.
//
//   unfused H Lq Lk D CAUSAL(0|1) THREADS REPEAT      prints the seconds of each call, one per line
#include <cblas.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string_view>
#include <vector>

extern "C" void openblas_set_num_threads(int threads);

namespace {

struct Sizes {
  int heads, query_length, key_length, head_dim;
  bool causal;
};

// Turns one head's scores into weights: x -> exp(x - largest) / sum. If causal, row i sees keys 0 to i.
void softmax(float* scores, const Sizes& s) {
  for (int i = 0; i < s.query_length; ++i) {
    float* row = scores + static_cast<std::ptrdiff_t>(i) * s.key_length;
    const int seen = s.causal ? std::min(i + 1, s.key_length) : s.key_length;
    float largest = row[0];
    for (int j = 1; j < seen; ++j) largest = std::max(largest, row[j]);
    float sum = 0;
    for (int j = 0; j < seen; ++j) {
      row[j] = std::exp(row[j] - largest);
      sum += row[j];
    }
    for (int j = 0; j < seen; ++j) row[j] /= sum;
    std::fill(row + seen, row + s.key_length, 0.0f);
  }
}

// query, key, value and output are [H, L, D]; scores has room for one head.
void attention(const Sizes& s, const float* query, const float* key, const float* value, float* scores,
               float* output) {
  const auto row_size = static_cast<std::ptrdiff_t>(s.head_dim);
  for (int h = 0; h < s.heads; ++h) {
    const float* q = query + h * s.query_length * row_size;
    const float* k = key + h * s.key_length * row_size;
    const float* v = value + h * s.key_length * row_size;
    float* o = output + h * s.query_length * row_size;
    const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s.query_length, s.key_length, s.head_dim, scale, q,
                s.head_dim, k, s.head_dim, 0, scores, s.key_length);
    softmax(scores, s);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, s.query_length, s.head_dim, s.key_length, 1,
                scores, s.key_length, v, s.head_dim, 0, o, s.head_dim);
  }
}

std::vector<float> random_numbers(std::mt19937& engine, std::int64_t rows, std::int64_t columns) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(rows * columns));
  for (float& number : numbers) number = normal(engine);
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  int numbers[7] = {};
  bool well = argc == 8;
  for (int i = 0; well && i < 7; ++i) {
    const std::string_view text = argv[i + 1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
    well = error == std::errc() && end == text.data() + text.size() && numbers[i] >= (i == 4 ? 0 : 1);
  }
  if (!well) {
    std::fputs("usage: unfused H Lq Lk D CAUSAL(0|1) THREADS REPEAT\n", stderr);
    return 2;
  }
  const Sizes s{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] != 0};
  openblas_set_num_threads(numbers[5]);
  std::mt19937 engine(0);
  const std::vector<float> query = random_numbers(engine, s.heads, s.query_length * s.head_dim);
  const std::vector<float> key = random_numbers(engine, s.heads, s.key_length * s.head_dim);
  const std::vector<float> value = random_numbers(engine, s.heads, s.key_length * s.head_dim);
  std::vector<float> output(query.size());
  std::vector<float> scores(static_cast<std::size_t>(s.query_length) *
                            static_cast<std::size_t>(s.key_length));
  attention(s, query.data(), key.data(), value.data(), scores.data(), output.data());
  for (int i = 0; i < numbers[6]; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    attention(s, query.data(), key.data(), value.data(), scores.data(), output.data());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%.9g\n", seconds.count());
  }
  return 0;
}
