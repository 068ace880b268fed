// Compares the example programs with the notebooks. Their printed numbers are compared with the outputs of
// the notebooks' cells (tests/data/notebooks). The tensors that they save are compared with PyTorch's
// (tests/data/golden).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden.hpp"
#include "heed/io/tensors.hpp"
#include "io_support.hpp"

namespace {

using heed::Tensor;
using heed::test::relative_error;

// A number may differ from the notebook's by one unit of its last digit. Weights below 1e-6 may differ by a
// thousandth, because softmax magnifies the last bit of its scores.
constexpr double kTinyWeight = 1e-6;
constexpr double kTinyWeightTolerance = 1e-3;
// Two f32 computations that sum in different orders, relative to the tensor's norm.
constexpr double kTensorTolerance = 2e-6;

using Numbers = std::vector<std::string>;

// The numbers in a text, as strings.
Numbers numbers_in(const std::string& text) {
  Numbers numbers;
  std::string word;
  for (const char c : text + ' ') {
    if (std::string("+-.0123456789einf").find(c) != std::string::npos) {
      word += c;
    } else {
      if (!word.empty() && word != "...") numbers.push_back(word);
      word.clear();
    }
  }
  return numbers;
}

// One unit of the last digit: 1e-7 for "1.2345e-03". Whole numbers are exact.
double unit_of(const std::string& number) {
  const std::size_t exponent = number.find('e');
  const std::size_t point = number.find('.');
  if (point == std::string::npos || number.back() == '.') return 0;
  const std::size_t digits = std::min(exponent, number.size()) - point - 1;
  const double power = exponent == std::string::npos ? 0 : std::stod(number.substr(exponent + 1));
  return std::pow(10.0, power - static_cast<double>(digits));
}

bool agrees(const std::string& got, const std::string& expected) {
  if (got == expected) return true;
  const double value = std::stod(got);
  const double wanted = std::stod(expected);
  const bool tiny = std::abs(wanted) < kTinyWeight;
  const double tolerance = tiny ? kTinyWeightTolerance * std::abs(wanted) : unit_of(expected);
  return std::abs(value - wanted) <= tolerance * (1 + 1e-9);  // allows for decimal digits in binary
}

// A file of tests/data/notebooks: a line "name:", then lines of numbers, with "..." where the notebook cuts
// its text.
struct Printed {
  Numbers numbers;
  bool cut = false;
};

std::map<std::string, Printed> printed_by_notebook(const std::string& number) {
  std::ifstream file(std::string(HEED_TEST_DATA) + "/notebooks/" + number + ".txt");
  std::map<std::string, Printed> all;
  Printed* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with(':')) {
      current = &all[line.substr(0, line.size() - 1)];
    } else if (line == "  ...") {
      current->cut = true;
    } else {
      for (std::string& word : numbers_in(line)) current->numbers.push_back(std::move(word));
    }
  }
  return all;
}

// The first brackets that a program prints after "name:".
std::string printed_under(const std::string& output, const std::string& name) {
  const std::size_t at = ("\n" + output).find("\n" + name + ":");
  if (at == std::string::npos) return "";
  const std::size_t begin = output.find_first_of("([", at + name.size());
  int depth = 0;
  for (std::size_t end = begin; end < output.size(); ++end) {
    if (output[end] == '(' || output[end] == '[') ++depth;
    if ((output[end] == ')' || output[end] == ']') && --depth == 0)
      return output.substr(begin + 1, end - begin - 1);
  }
  return "";
}

struct Run {
  std::string output;
  heed::io::SafetensorsReader tensors;
};

Run run(const std::string& program) {
  const heed::test::TemporaryFolder folder;
  const std::string saved = folder / "tensors.safetensors";
  const std::string command =
      std::string("'") + HEED_EXAMPLES + "/" + program + "' '" + saved + "' > '" + folder / "output" + "'";
  if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
  return {heed::test::read_file(folder / "output"), heed::io::SafetensorsReader(saved)};
}

struct Lesson {
  std::string program;
  std::string notebook;
  std::string golden;  // a folder in tests/data/golden; empty if the notebook sets no seed
};

std::ostream& operator<<(std::ostream& stream, const Lesson& lesson) { return stream << lesson.program; }

class Notebook : public testing::TestWithParam<Lesson> {};

TEST_P(Notebook, IsPrintedWithTheSameNumbers) {
  const std::string output = run(GetParam().program).output;
  const auto expected = printed_by_notebook(GetParam().notebook);
  ASSERT_FALSE(expected.empty());
  for (const auto& [name, printed] : expected) {
    const Numbers numbers = numbers_in(printed_under(output, name));
    if (printed.cut)
      ASSERT_GE(numbers.size(), printed.numbers.size()) << name;
    else
      ASSERT_EQ(numbers.size(), printed.numbers.size()) << name;
    for (std::size_t i = 0; i < printed.numbers.size(); ++i)
      EXPECT_TRUE(agrees(numbers[i], printed.numbers[i]))
          << name << ", number " << i << ": " << numbers[i] << " instead of " << printed.numbers[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Lessons, Notebook,
                         testing::Values(Lesson{"1_input_sentence", "003", "003_input_sentence"},
                                         Lesson{"2_pay_attention", "000", "000_pay_attention"},
                                         Lesson{"3_causal_head", "001", "001_single_head"},
                                         Lesson{"4_self_attention", "002", ""},
                                         Lesson{"5_multihead", "004", "004_multihead"}),
                         [](const auto& lesson) { return lesson.param.program.substr(2); });

class SeededNotebook : public Notebook {};

TEST_P(SeededNotebook, IsComputedWithTheSameTensors) {
  const auto tensors = run(GetParam().program).tensors;
  const std::filesystem::path folder = std::string(HEED_TEST_DATA) + "/golden/" + GetParam().golden;
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".npy") continue;
    const std::string name = std::filesystem::relative(entry.path(), folder).replace_extension().string();
    const Tensor got = tensors.read(name);
    const Tensor expected = heed::io::read_npy(entry.path().string());
    EXPECT_EQ(got.dtype(), expected.dtype()) << name;
    if (heed::is_floating(got.dtype()))
      EXPECT_TRUE(relative_error(got, expected) <= kTensorTolerance)
          << name << ": relative error " << relative_error(got, expected);
    else
      EXPECT_TRUE(heed::test::same_bits(got, expected)) << name;
    ++count;
  }
  EXPECT_GT(count, 0);
}

INSTANTIATE_TEST_SUITE_P(Lessons, SeededNotebook,
                         testing::Values(Lesson{"1_input_sentence", "003", "003_input_sentence"},
                                         Lesson{"2_pay_attention", "000", "000_pay_attention"},
                                         Lesson{"3_causal_head", "001", "001_single_head"},
                                         Lesson{"5_multihead", "004", "004_multihead"}),
                         [](const auto& lesson) { return lesson.param.program.substr(2); });

TEST(PayAttention, NamesTheWordOfTheSentenceAndShowsWhichOneTheNotebookNames) {
  const std::string output = run("2_pay_attention").output;
  EXPECT_NE(output.find("is: 'quick', word 1 of the sentence, with dictionary index 7"), std::string::npos);
  EXPECT_NE(output.find("(The notebook says: 'brown' with dictionary index 1.)"), std::string::npos);
}

TEST(CausalHead, FindsTheThreeWaysOfAveragingEqual) {
  const std::string output = run("3_causal_head").output;
  const std::string line = "Tensors are equal: true\n";
  const std::size_t first = output.find(line);
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(output.find(line, first + 1), std::string::npos);
  EXPECT_EQ(output.find("Tensors are equal: false"), std::string::npos);
}

TEST(Multihead, ShowsThatThePlainReshapeOfTheNotebookGivesOtherNumbers) {
  const auto tensors = run("5_multihead").tensors;
  for (const std::string side : {"encoder/", "decoder/"}) {
    const Tensor merged = tensors.read(side + "out_heads_merged");
    EXPECT_GT(relative_error(tensors.read(side + "out_as_in_notebook"), merged), 0.1) << side;
  }
}

TEST(Multihead, GetsTheSameFromTheLayerAsStepByStep) {
  const auto tensors = run("5_multihead").tensors;
  EXPECT_TRUE(relative_error(tensors.read("layer.out"), tensors.read("model.out")) <= kTensorTolerance);
}

TEST(Lesson, SaysWhyItCannotSaveAndFails) {
  heed::test::TemporaryFolder folder;
  const std::string command = std::string("'") + HEED_EXAMPLES + "/4_self_attention' '" +
                              folder / "none/tensors" + "' > /dev/null 2> '" + folder / "errors" + "'";
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_NE(heed::test::read_file(folder / "errors").find("none/tensors"), std::string::npos);
}

}  // namespace
