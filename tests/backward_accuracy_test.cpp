// Compares the errors of gradients with an unfused computation in f32: see gradient_errors.hpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "gradient_errors.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::Kernel;

// The yardstick has errors, but no more than an f32 computation may have. The reference has smaller ones,
// because with f32 inputs it rounds only the result.
TEST(BackwardAccuracy, TheReferenceIsMoreExactThanUnfusedGradientsInF32) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    heed::test::CallLimits limits;
    limits.dtypes = {dtype};
    heed::test::AllGradientErrors errors;
    for (std::uint64_t index = 0; index < heed::test::share_of(500); ++index) {
      heed::test::BackwardCall made = heed::test::backward_call(20240706, index, limits);
      made.call.options.kernel = Kernel::reference;
      const auto gradients = heed::attention_backward(made.inputs, made.call.options, made.request);
      heed::test::add_errors(made, gradients, errors);
    }
    for (std::size_t g = 0; g < errors.size(); ++g) {
      const heed::test::GradientErrors& e = errors[g];
      const std::string what = std::string(heed::name_of(dtype)) + " " + heed::test::kGradientNames[g];
      EXPECT_GT(e.rows, 0) << what;
      // Gradients that are stored in 16 bits, as for most biases and sinks, have the error of storing only.
      const double most = dtype == DType::f32 && g < 3 ? 0.7 : 1.01;
      EXPECT_TRUE(e.mean_ratio() <= most) << what << ": " << e.mean_ratio();
      EXPECT_TRUE(e.kernel.largest <= 1) << what << ": " << e.kernel.largest << " of the unit";
      EXPECT_TRUE(e.unfused.largest <= 1) << what << ": " << e.unfused.largest << " of the unit";
    }
  }
}

}  // namespace
