// Shared by the tests of heed attend: a folder with a query, keys and values, and ways to run the command on
// them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "heed/tensor.hpp"

namespace heed::test {

using Words = std::vector<std::string>;

inline Tensor random_tensor(const Dims& shape, unsigned seed, DType dtype = DType::f32) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Tensor tensor(shape, DType::f64);
  for (double& value : tensor.values<double>()) value = normal(engine);
  return Tensor::copy_of(tensor, dtype);
}

// Whether both have the same dtype, shape and bits.
inline ::testing::AssertionResult same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) {
    return ::testing::AssertionFailure() << name_of(a.dtype()) << to_string(a.shape()) << " is not "
                                         << name_of(b.dtype()) << to_string(b.shape());
  }
  const std::size_t bytes = static_cast<std::size_t>(a.count()) * size_of(a.dtype());
  if (bytes > 0 && std::memcmp(a.view().data(), b.view().data(), bytes) != 0) {
    return ::testing::AssertionFailure() << "the elements differ";
  }
  return ::testing::AssertionSuccess();
}

class Attend : public ::testing::Test {
 protected:
  Attend() {
    write("q.npy", query);
    write("k.npy", key);
    write("v.npy", value);
  }

  void write(const std::string& name, const TensorView& tensor) const {
    heed::io::write_npy(folder / name, tensor);
  }
  [[nodiscard]] Tensor read(const std::string& name) const { return heed::io::read_npy(folder / name); }
  [[nodiscard]] CommandResult run(const Words& more, CommandInput input = {}) const {
    Words words = {"attend", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy"};
    words.insert(words.end(), more.begin(), more.end());
    input.directory = folder.path();
    return run_heed(words, input);
  }
  // Runs the command and expects success without messages.
  void run_well(const Words& more) const {
    const CommandResult result = run(more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
    EXPECT_EQ(result.output, "");
  }
  // Runs the command and expects this one line and no files written.
  void expect_error(int exit_code, const Words& more, const std::string& message,
                    const CommandInput& input = {}) const {
    const Words before = folder.names();
    const CommandResult result = run(more, input);
    EXPECT_EQ(result.exit_code, exit_code) << ::testing::PrintToString(more);
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(folder.names(), before);
  }

  TemporaryFolder folder;
  Tensor query = random_tensor({2, 4, 5, 8}, 1);
  Tensor key = random_tensor({2, 2, 7, 8}, 2);
  Tensor value = random_tensor({2, 2, 7, 6}, 3);
};

}  // namespace heed::test
