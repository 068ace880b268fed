// Compares gradients with PyTorch's; tests/python/torch_gradients.py made the file.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "attention_support.hpp"
#include "heed/attention/backward.hpp"
#include "heed/io/tensors.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::DType;
using heed::Tensor;
using heed::TensorView;

class TorchGradients : public ::testing::Test {
 protected:
  void load(const std::string& name) { case_ = name; }
  Tensor read(const std::string& name) const { return file_.read(case_ + "." + name); }
  std::optional<Tensor> read_if(const std::string& name) const {
    if (!file_.contains(case_ + "." + name)) return std::nullopt;
    return read(name);
  }

  // The gradients of a case; the caller gives masks and other options.
  AttentionGradients gradients(AttentionOptions options) {
    query_ = read("query"), key_ = read("key"), value_ = read("value");
    output_ = read("output"), lse_ = read("lse"), grad_output_ = read("grad_output");
    bias_ = read_if("bias"), sinks_ = read_if("sinks"), mask_ = read_if("mask");
    slopes_ = read_if("alibi_slopes");
    grad_lse_ = read_if("grad_lse"), grad_weights_ = read_if("grad_weights");
    const auto view = [](const std::optional<Tensor>& tensor) {
      return tensor ? std::optional<TensorView>(*tensor) : std::nullopt;
    };
    options.bias = view(bias_);
    options.sinks = view(sinks_);
    options.mask = view(mask_);
    options.alibi_slopes = view(slopes_);
    const AttentionBackwardInputs inputs{query_, key_,         value_,          output_,
                                         lse_,   grad_output_, view(grad_lse_), view(grad_weights_)};
    return heed::attention_backward(inputs, options,
                                    {.bias = bias_.has_value(), .sinks = sinks_.has_value()});
  }

  void expect(const AttentionOptions& options, double tolerance) {
    const AttentionGradients got = gradients(options);
    const auto near = [&](const Tensor& mine, const char* name) {
      EXPECT_TRUE(heed::test::largest_difference(mine, read(name)) <= tolerance) << case_ << " " << name;
    };
    near(got.query, "d_query");
    near(got.key, "d_key");
    near(got.value, "d_value");
    if (bias_) near(got.bias, "d_bias");
    if (sinks_) near(got.sinks, "d_sinks");
  }

  static constexpr double kInF64 = 1e-14;  // both f64; sums of at most a hundred terms around 1

 private:
  heed::io::SafetensorsReader file_{std::string(HEED_TEST_DATA) + "/golden/torch_gradients.safetensors"};
  std::string case_;
  Tensor query_, key_, value_, output_, lse_, grad_output_;
  std::optional<Tensor> bias_, sinks_, mask_, slopes_, grad_lse_, grad_weights_;
};

TEST_F(TorchGradients, AreThoseOfScaledDotProductAttention) {
  load("sdpa_full");
  expect({}, kInF64);
  load("sdpa_causal");
  expect({.causal = true}, kInF64);
  load("sdpa_wide_value_scale");
  expect({.scale = 0.7}, kInF64);
  load("sdpa_grouped");
  expect({}, kInF64);
}

TEST_F(TorchGradients, AreThoseOfItsMasksAndBiases) {
  load("sdpa_bias");
  expect({}, kInF64);
  load("sdpa_mask");
  expect({}, kInF64);
}

TEST_F(TorchGradients, AreThoseOfItsFusedKernelInF32) {
  load("sdpa_f32");
  // Both are in f32. The magnitudes of a gradient's terms add up to 16, and each side makes two roundings of
  // that. Measured: PyTorch's error is 6.5e-7, and the largest difference is 1.3e-6.
  expect({.causal = true}, 4 * 16 * 0x1p-24);
}

TEST_F(TorchGradients, AreThoseOfSoftcapAlibiSinksWeightsAndLse) {
  load("written_out");
  expect({.causal = true, .softcap = 2}, kInF64);
}

}  // namespace
