// The ONNX project's own cases of its Attention operator (opsets 23 to 25): 87 folders of a case.json and
// .npy files, which are stored beside this project. ONNX's terms and their equivalents here:
//
//   is_causal, *_window_size     causal and window; with nonpad_kv_seqlen positions count from the bottom
//                                right, with a past from the past's length, otherwise from the top left
//   attn_mask                    mask if it is bool, bias if it is floating; if shorter than the keys, it is
//                                padded with forbidden entries
//   nonpad_kv_seqlen             kv_lengths
//   past_key, past_value         concatenated before key and value by this test
//   [B, L, H * D]                read as [B, H, L, D] through strides
//   qk_matmul_output_mode        0, 1, 2: scores at the stages raw, softcap and bias; 3: weights
//   softmax_precision            ignored: this library computes in at least the inputs' precision
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/attention.hpp"
#include "heed/io/tensors.hpp"
#include "path_watch.hpp"

namespace {

using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::TensorView;

constexpr std::size_t kCases = 87;
const std::filesystem::path kFolder = std::filesystem::path(HEED_SOURCE_DIR) / "../shared/onnx_attention";

class OnnxCase {
 public:
  OnnxCase(std::filesystem::path folder, heed::Kernel kernel) : folder_(std::move(folder)) {
    options_.kernel = kernel;
    case_ = nlohmann::json::parse(std::ifstream(folder_ / "case.json"));
    for (const auto& [attribute, value] : case_["attributes"].items())
      EXPECT_EQ(kAttributes.count(attribute), 1u) << attribute << " is not known to this test";
    for (const auto& [input, value] : case_["inputs"].items())
      EXPECT_EQ(kInputs.count(input), 1u) << input << " is not known to this test";
  }

  /// Whether the reference computed a call that was meant for the fused kernel.
  [[nodiscard]] bool fell_back() const { return fell_back_; }

  void run() {
    const Tensor q = heed::io::read_npy(folder_ / "Q.npy");
    const Tensor k = heed::io::read_npy(folder_ / "K.npy");
    const Tensor v = heed::io::read_npy(folder_ / "V.npy");
    const TensorView query = split_heads(q, "q_num_heads");
    const Tensor key = after_past("past_key", split_heads(k, "kv_num_heads"));
    const Tensor value = after_past("past_value", split_heads(v, "kv_num_heads"));
    read_options(key.size(2) - k.size(-2), key.size(2));
    heed::test::PathWatch paths;
    const auto result = heed::attention(query, key, value, options_);
    ASSERT_EQ(result.kernel, options_.kernel);
    fell_back_ = paths.fell_back_at_all();
    const TensorView output = q.rank() == 4 ? result.output.view() : result.output.view().transpose(1, 2);
    expect_close("Y", Tensor::copy_of(output));
    expect_close("present_key", key);
    expect_close("present_value", value);
    expect_close("qk_matmul_output", mode() == 3 ? result.weights : result.scores);
    for (const auto& [output_name, description] : case_["outputs"].items())
      EXPECT_EQ(compared_.count(output_name), 1u) << output_name << " was not compared";
  }

 private:
  inline static const std::set<std::string> kAttributes{
      "is_causal", "kv_num_heads",      "left_window_size",  "q_num_heads", "qk_matmul_output_mode",
      "scale",     "right_window_size", "softmax_precision", "softcap"};
  inline static const std::set<std::string> kInputs{
      "Q", "K", "V", "attn_mask", "nonpad_kv_seqlen", "past_key", "past_value"};

  bool has_input(const char* name) const { return case_["inputs"].contains(name); }
  bool has_output(const char* name) const { return case_["outputs"].contains(name); }
  template <class T>
  T attribute(const char* name, T otherwise) const {
    return case_["attributes"].value(name, otherwise);
  }
  std::int64_t mode() const { return attribute<std::int64_t>("qk_matmul_output_mode", 0); }

  TensorView split_heads(const TensorView& tensor, const char* heads_attribute) const {
    if (tensor.rank() == 4) return tensor;
    const auto heads = attribute<std::int64_t>(heads_attribute, 0);
    const Dims shape{tensor.size(0), tensor.size(1), heads, tensor.size(2) / heads};
    return tensor.reshape(shape).transpose(1, 2);
  }

  Tensor after_past(const char* past_name, const TensorView& current) const {
    if (!has_input(past_name)) return Tensor::copy_of(current);
    const Tensor past = heed::io::read_npy(folder_ / (std::string(past_name) + ".npy"));
    const std::int64_t before = past.size(2);
    Tensor whole({current.size(0), current.size(1), before + current.size(2), current.size(3)},
                 current.dtype());
    heed::copy(past, whole.mutable_view().narrow(2, 0, before));
    heed::copy(current, whole.mutable_view().narrow(2, before, current.size(2)));
    return whole;
  }

  void read_options(std::int64_t past_length, std::int64_t keys) {
    if (const double scale = attribute("scale", 0.0); scale != 0) options_.scale = scale;
    options_.causal = attribute<std::int64_t>("is_causal", 0) != 0;
    options_.softcap = attribute("softcap", 0.0);
    options_.window = {attribute<std::int64_t>("left_window_size", -1),
                       attribute<std::int64_t>("right_window_size", -1)};
    if (has_input("past_key")) options_.query_offset = past_length;
    if (has_input("nonpad_kv_seqlen")) {
      lengths_ = heed::io::read_npy(folder_ / "nonpad_kv_seqlen.npy");
      options_.kv_lengths = lengths_;
      options_.align = heed::Align::bottom_right;
    }
    if (has_input("attn_mask")) read_mask(keys);
    if (!has_output("qk_matmul_output")) return;
    options_.need = mode() == 3 ? Need::weights : Need::scores;
    if (mode() < 3) options_.scores_stage = static_cast<heed::ScoresStage>(mode());
  }

  void read_mask(std::int64_t keys) {
    const Tensor given = heed::io::read_npy(folder_ / "attn_mask.npy");
    Dims shape = given.shape();
    const std::int64_t length = shape.back();
    shape[shape.size() - 1] = keys;
    mask_ = Tensor(shape, given.dtype());  // bool: false forbids
    if (given.dtype() != DType::boolean) {
      const Tensor forbid = Tensor::from<double>({-std::numeric_limits<double>::infinity()}, {1});
      heed::copy(forbid.view().expand(shape), mask_);
    }
    heed::copy(given, mask_.mutable_view().narrow(-1, 0, length));
    if (given.dtype() == DType::boolean)
      options_.mask = mask_;
    else
      options_.bias = mask_;
  }

  // ONNX compares at rtol 1e-3, atol 1e-7, but tighter bounds hold. NumPy computed the cases in the inputs'
  // dtype, from sums of at most 10 products and 18 weights of numbers in [0, 1). They differ from ours by at
  // most 1.2e-7 (f32) and 3.3e-4 (f16), relative to 1 + |expected|. The bounds are four roundings of f32
  // (2^-24 each) and two of f16 (2^-11 each).
  void expect_close(const char* name, const Tensor& result) {
    if (!has_output(name)) return;
    compared_.insert(name);
    const Tensor expected = heed::io::read_npy(folder_ / (std::string(name) + ".npy"));
    Tensor shaped = Tensor::copy_of(result).reshaped(expected.shape());
    const Tensor got = Tensor::copy_of(shaped, DType::f64);
    const Tensor want = Tensor::copy_of(expected, DType::f64);
    const double tolerance = expected.dtype() == DType::f16 ? kHalf : kSingle;
    for (std::size_t i = 0; i < got.values<double>().size(); ++i) {
      const double a = got.values<double>()[i];
      const double b = want.values<double>()[i];
      if (a == b) continue;  // infinities
      ASSERT_TRUE(std::abs(a - b) <= tolerance * (1 + std::abs(b)))
          << name << " element " << i << " is " << a << "; " << b << " is expected";
    }
  }

  static constexpr double kSingle = 4 * 0x1p-24;
  static constexpr double kHalf = 2 * 0x1p-11;

  std::filesystem::path folder_;
  nlohmann::json case_;
  AttentionOptions options_;
  bool fell_back_ = false;
  Tensor lengths_, mask_;
  std::set<std::string> compared_;
};

void expect_all_cases(heed::Kernel kernel) {
  std::size_t cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (!std::filesystem::exists(entry.path() / "case.json")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    OnnxCase onnx_case(entry.path(), kernel);
    onnx_case.run();
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_FALSE(onnx_case.fell_back());
    ++cases;
  }
  EXPECT_EQ(cases, kCases);
}

class OnnxAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(kFolder))
      GTEST_SKIP() << "the ONNX cases are not beside the project: there is no folder " << kFolder;
  }
};

TEST_F(OnnxAttention, AllCasesPassThroughTheReference) { expect_all_cases(heed::Kernel::reference); }

TEST_F(OnnxAttention, AllCasesPassThroughTheFusedKernel) {
  if (const std::string reason = heed::test::why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  expect_all_cases(heed::Kernel::fused);
}

}  // namespace
