// The examples that decode with a cache, in C++ and in C. Their output is compared with the same model in
// f64, over plain vectors of words.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "io_support.hpp"

namespace {

// Weights are f32, printed with three decimals.
constexpr double kTolerance = 0.0005 + 1e-6;

using Vector = std::array<double, 16>;

Vector embed(const std::string& word) {
  std::uint32_t hash = 2166136261;
  for (const char letter : word) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619;
  Vector signs{};
  for (std::size_t c = 0; c < signs.size(); ++c) signs[c] = (hash >> c) % 2 == 1 ? 1 : -1;
  return signs;
}

double product(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// softmax_j of q · k_j / 2 minus an eighth of the distance, for the last word.
std::vector<double> weights_of(const std::vector<std::string>& words, bool looks_for_what_followed) {
  const Vector query = embed(words.back());
  std::vector<double> weights;
  for (std::size_t j = 0; j < words.size(); ++j) {
    const std::string key = !looks_for_what_followed ? words[j] : j == 0 ? "" : words[j - 1];
    weights.push_back(
        std::exp(product(query, embed(key)) / 2 - static_cast<double>(words.size() - 1 - j) / 8));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::string next_word(const std::vector<std::string>& words) {
  const std::vector<double> weights = weights_of(words, true);
  Vector output{};
  for (std::size_t j = 0; j < words.size(); ++j)
    for (std::size_t c = 0; c < output.size(); ++c) output[c] += weights[j] * embed(words[j])[c];
  return *std::max_element(words.begin(), words.end(), [&](const std::string& a, const std::string& b) {
    return product(output, embed(a)) < product(output, embed(b));
  });
}

// Checks a title and three times "  position word weight": the largest weights, each with its position.
void expect_attended(const std::string& line, const std::string& title, const std::vector<std::string>& words,
                     const std::vector<double>& weights) {
  ASSERT_TRUE(line.starts_with(title)) << line;
  std::vector<double> largest = weights;
  std::sort(largest.rbegin(), largest.rend());
  std::istringstream text(line.substr(title.size()));
  for (std::size_t k = 0; k < 3; ++k) {
    std::size_t position = 0;
    std::string word;
    double weight = 0;
    ASSERT_TRUE(text >> position >> word >> weight) << line;
    ASSERT_LT(position, words.size()) << line;
    EXPECT_EQ(word, words[position]) << line;
    EXPECT_NEAR(weight, weights[position], kTolerance) << line;
    EXPECT_NEAR(weight, largest[k], kTolerance) << line;
  }
}

std::string output_of(const std::string& program) {
  const heed::test::TemporaryFolder folder;
  const std::string command =
      std::string("'") + HEED_EXAMPLES + "/" + program + "' > '" + folder / "output" + "'";
  if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
  return heed::test::read_file(folder / "output");
}

class Decode : public testing::TestWithParam<std::string> {};

TEST_P(Decode, PrintsWhatEachStepAttendedTo) {
  std::istringstream output(output_of(GetParam()));
  std::vector<std::string> words{"the", "cat", "sat", "on", "the", "mat", "and", "the"};
  std::string line;
  for (int step = 0; step < 6; ++step) {
    ASSERT_TRUE(std::getline(output, line));
    EXPECT_EQ(line, "position " + std::to_string(words.size() - 1) + ", \"" + words.back() + "\"");
    ASSERT_TRUE(std::getline(output, line));
    expect_attended(line, "  followed it:", words, weights_of(words, true));
    ASSERT_TRUE(std::getline(output, line));
    expect_attended(line, "  is the same:", words, weights_of(words, false));
    words.push_back(next_word(words));
    ASSERT_TRUE(std::getline(output, line));
    EXPECT_EQ(line, "  next word: " + words.back());
  }
  ASSERT_TRUE(std::getline(output, line));
  EXPECT_EQ(line, "the cache holds 14 rows in 4 of 8 pages");  // of 4 rows
  EXPECT_FALSE(std::getline(output, line));
}

INSTANTIATE_TEST_SUITE_P(Languages, Decode, testing::Values("decode", "decode_c"),
                         [](const auto& one) { return one.param; });

}  // namespace
