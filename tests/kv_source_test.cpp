// KvSource: packing rows of any strides and types gives the same as packing contiguous memory.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention_support.hpp"
#include "kernel_unit/units.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::TensorView;

class KvSource : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = heed::test::why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
    const Tensor one({1, 1});
    unit_ = heed::test::kernel_unit(heed::attention(one, one, one, {.kernel = heed::Kernel::fused}).isa);
  }
  heed::test::KernelUnit unit_{};
};

// Layouts of the same 130 rows of up to 40 columns: in order, with gaps between rows and columns, columns
// first, backwards, and one row repeated.
std::vector<TensorView> layouts(const Tensor& rows, const Tensor& columns) {
  const TensorView view = rows.view();
  const auto* last = static_cast<const std::byte*>(view.data()) + 129 * 80 * heed::size_of(view.dtype());
  return {view.narrow(1, 0, 40),
          view.narrow(1, 3, 17),
          {view.data(), view.dtype(), {65, 40}, {160, 1}},
          {view.data(), view.dtype(), {130, 40}, {80, 2}},
          columns.view().transpose(0, 1),
          {last, view.dtype(), {130, 40}, {-80, 1}},
          view.narrow(0, 5, 1).narrow(1, 0, 32).expand({130, 32})};
}

TEST_F(KvSource, GivesTheRowsOfPlainMemory) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor rows = heed::test::normal_tensor({130, 80}, 1, dtype);
    const Tensor columns = heed::test::normal_tensor({40, 130}, 2, dtype);
    for (const TensorView& view : layouts(rows, columns)) {
      const Tensor plain = Tensor::copy_of(view, DType::f32);
      const auto all = plain.values<float>();
      const std::int64_t width = view.shape()[1];
      for (const std::int64_t first : {0, 1, 7, 40})
        for (const std::int64_t count : {1, 4, 15, 16, 17, 25}) {
          const float* from = all.data() + first * width;
          const std::vector<float> expected(from, from + count * width);
          EXPECT_EQ(unit_.pack_values(view, first, count), expected);
          std::vector<float> scaled = expected;
          for (float& x : scaled) x *= 0.25f;
          EXPECT_EQ(unit_.pack_keys(view, first, count, 0.25f), scaled);
        }
    }
  }
}

}  // namespace
