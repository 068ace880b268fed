// heed attend --grad-output: writes the same gradients as the library.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attend_support.hpp"
#include "command.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/tensor.hpp"

namespace {

using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::DType;
using heed::GradientRequest;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Attend;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::same;
using heed::test::Words;

class AttendGradients : public Attend {
 protected:
  AttendGradients() { write("do.npy", grad_output); }

  // The library's gradients of the fixture's tensors, in f32.
  AttentionGradients expected(AttentionOptions options, const GradientRequest& request = {},
                              const std::optional<TensorView>& grad_lse = {},
                              const std::optional<TensorView>& grad_weights = {}) const {
    options.need = Need::lse;
    const auto forward = attention(query, key, value, options);
    return heed::attention_backward(
        {query, key, value, forward.output, forward.lse, grad_output, grad_lse, grad_weights}, options,
        request);
  }

  Tensor grad_output = random_tensor({2, 4, 5, 6}, 7);
};

TEST_F(AttendGradients, EveryGradientHasAFile) {
  const Tensor bias = random_tensor({4, 1, 7}, 4);
  const Tensor sinks = random_tensor({4}, 5, DType::f64);
  write("bias.npy", bias);
  write("sinks.npy", sinks);
  run_well({"--causal",  "--softcap",    "2",      "--bias",         "bias.npy", "--sinks",
            "sinks.npy", "--dropout",    "0.25",   "--dropout-seed", "9",        "--grad-output",
            "do.npy",    "--grad-query", "dq.npy", "--grad-key",     "dk.npy",   "--grad-value",
            "dv.npy",    "--grad-bias",  "db.npy", "--grad-sinks",   "ds.npy",   "--out",
            "o.npy"});
  AttentionOptions options;
  options.causal = true;
  options.softcap = 2;
  options.bias = bias;
  options.sinks = sinks;
  options.dropout = {.probability = 0.25, .seed = 9};
  const AttentionGradients want = expected(options, {.bias = true, .sinks = true});
  EXPECT_TRUE(same(read("dq.npy"), want.query));
  EXPECT_TRUE(same(read("dk.npy"), want.key));
  EXPECT_TRUE(same(read("dv.npy"), want.value));
  EXPECT_TRUE(same(read("db.npy"), want.bias));
  EXPECT_TRUE(same(read("ds.npy"), want.sinks));
  EXPECT_TRUE(same(read("o.npy"), attention(query, key, value, options).output));
}

TEST_F(AttendGradients, AnyOfThemComesAlone) {
  const AttentionGradients want = expected({});
  const std::vector<std::pair<std::string, const Tensor*>> all = {
      {"--grad-query", &want.query}, {"--grad-key", &want.key}, {"--grad-value", &want.value}};
  for (const auto& [option, tensor] : all) {
    run_well({"--grad-output", "do.npy", option, "d.npy"});
    EXPECT_TRUE(same(read("d.npy"), *tensor)) << option;
  }
}

TEST_F(AttendGradients, TheLossMayReadTheLseAndTheWeightsToo) {
  const Tensor by_lse = random_tensor({2, 4, 5}, 8);
  const Tensor by_weights = random_tensor({2, 4, 5, 7}, 9);
  write("dl.npy", by_lse);
  write("dw.npy",
        Tensor::copy_of(by_weights, DType::f64));  // f32 inputs have f32 weights, so this one is converted
  run_well({"--grad-output", "do.npy", "--grad-lse", "dl.npy", "--grad-weights", "dw.npy", "--grad-query",
            "dq.npy"});
  EXPECT_TRUE(same(read("dq.npy"), expected({}, {}, by_lse, by_weights).query));
  EXPECT_FALSE(same(read("dq.npy"), expected({}, {}, by_lse).query));
  EXPECT_FALSE(same(read("dq.npy"), expected({}, {}, {}, by_weights).query));
}

TEST_F(AttendGradients, LieAsTheLayoutSays) {
  const AttentionGradients want = expected({});
  write("q.npy", query.view().transpose(1, 2));
  write("k.npy", key.view().transpose(1, 2));
  write("v.npy", value.view().transpose(1, 2));
  write("do.npy", grad_output.view().transpose(1, 2));
  run_well({"--layout", "blhd", "--grad-output", "do.npy", "--grad-query", "dq.npy", "--grad-key", "dk.npy",
            "--grad-value", "dv.npy"});
  EXPECT_TRUE(same(read("dq.npy"), Tensor::copy_of(want.query.view().transpose(1, 2))));
  EXPECT_TRUE(same(read("dk.npy"), Tensor::copy_of(want.key.view().transpose(1, 2))));
  EXPECT_TRUE(same(read("dv.npy"), Tensor::copy_of(want.value.view().transpose(1, 2))));
}

TEST_F(AttendGradients, AreComputedInTheDTypeOfTheCall) {
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const std::string name(name_of(dtype));
    write("dl.npy", random_tensor({2, 4, 5}, 8));
    run_well({"--dtype", name, "--grad-output", "do.npy", "--grad-lse", "dl.npy", "--grad-key", "dk.npy"});
    const auto as = [&](const Tensor& tensor) { return Tensor::copy_of(tensor, dtype); };
    const Tensor q = as(query), k = as(key), v = as(value), d = as(grad_output);
    const Tensor l = Tensor::copy_of(read("dl.npy"), dtype == DType::f64 ? DType::f64 : DType::f32);
    const auto forward = attention(q, k, v, {.need = Need::lse});
    const Tensor want = heed::attention_backward({q, k, v, forward.output, forward.lse, d, l}).key;
    EXPECT_TRUE(same(read("dk.npy"), Tensor::copy_of(want, dtype == DType::bf16 ? DType::f32 : dtype)));
  }
}

TEST_F(AttendGradients, TheObjectForMachinesTellsOfTheBackwardPass) {
  const CommandResult result = run({"--json", "--repeat", "3", "--threads", "1", "--kernel", "reference",
                                    "--grad-output", "do.npy", "--grad-query", "dq.npy"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const auto object = nlohmann::ordered_json::parse(result.output);
  Words keys;
  for (const auto& [name, ignored] : object["backward"].items()) keys.push_back(name);
  EXPECT_EQ(keys, (Words{"kernel", "isa", "threads", "recomputed_rows", "seconds", "gflops"}));
  EXPECT_EQ(object["backward"]["kernel"], "reference");
  EXPECT_EQ(object["backward"]["threads"], 1);
  const double seconds = object["backward"]["seconds"];
  EXPECT_GT(seconds, 0);
  // Five matrix products; the forward pass has two, of 2 (D + Dv) flops per score together.
  const double flops = 2.5 * 2.0 * (8 + 6) * (2 * 4 * 5 * 7);
  EXPECT_NEAR(object["backward"]["gflops"].get<double>(), flops / seconds / 1e9, 1e-9 * flops / seconds / 1e9)
      << "the same formula, rounded in another order";
  EXPECT_TRUE(same(read("dq.npy"), expected({.kernel = heed::Kernel::reference}).query))
      << "repeating changes no result";
}

TEST_F(AttendGradients, SayWhatIsWrong) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--grad-query", "d.npy"}, "--grad-query is given without --grad-output TENSOR"},
      {{"--grad-key", "d.npy", "--out", "o.npy"}, "--grad-key is given without --grad-output TENSOR"},
      {{"--grad-lse", "dl.npy", "--out", "o.npy"}, "--grad-lse is given without --grad-output TENSOR"},
      {{"--grad-weights", "dw.npy", "--out", "o.npy"},
       "--grad-weights is given without --grad-output TENSOR"},
      {{"--grad-output", "do.npy"},
       "--grad-output is given without a gradient to compute; --grad-query, --grad-key, --grad-value, "
       "--grad-bias, --grad-sinks, --grad-decay, --grad-lambda or --grad-gate FILE.npy is expected"},
      {{"--grad-output", "do.npy", "--grad-bias", "d.npy"}, "--grad-bias is given without --bias TENSOR"},
      {{"--grad-output", "do.npy", "--grad-sinks", "d.npy"}, "--grad-sinks is given without --sinks TENSOR"},
      {{"--grad-output", "do.npy", "--grad-value", "d.txt"},
       "--grad-value is 'd.txt'; a file whose name ends in .npy is expected"},
      {{"--grad-output", "do.txt", "--grad-value", "d.npy"},
       "--grad-output is 'do.txt'; FILE.npy, FILE.safetensors:NAME or - (a .npy file on standard input) is "
       "expected"},
      {{"--grad-output", "do.npy", "--grad-query", "q.npy"},
       "--grad-query 'q.npy' is the file that --query is read from; an input is never overwritten"},
      {{"--grad-output", "do.npy", "--grad-query", "do.npy"},
       "--grad-query 'do.npy' is the file that --grad-output is read from; an input is never overwritten"},
      {{"--grad-output", "do.npy", "--grad-query", "d.npy", "--grad-key", "d.npy"},
       "--grad-key 'd.npy' is the file that --grad-query goes to; each result needs its own file"},
      {{"--grad-output", "q.npy", "--grad-query", "d.npy"},
       "grad_output has shape [2, 4, 5, 8]; [2, 4, 5, 6] is expected"},
      {{"--grad-output", "do.npy", "--grad-lse", "do.npy", "--grad-query", "d.npy"},
       "grad_lse has shape [2, 4, 5, 6]; [2, 4, 5] is expected"},
      {{"--grad-output", "do.npy", "--grad-weights", "do.npy", "--grad-query", "d.npy"},
       "grad_weights has shape [2, 4, 5, 6]; [2, 4, 5, 7] is expected"},
      {{"--grad-output", "i.npy", "--grad-query", "d.npy"},
       "--grad-output has dtype i64; f64, f32, f16 or bf16 is expected (--dtype f32 would convert it)"},
  };
  write("i.npy", Tensor({2, 4, 5, 6}, DType::i64));
  for (const auto& [words, message] : cases) expect_error(2, words, message);
}

TEST_F(AttendGradients, AreAllWrittenOrNone) {
  heed::test::write_file(folder / "dq.npy", "old");
  expect_error(1, {"--grad-output", "do.npy", "--grad-query", "dq.npy", "--grad-key", "none/dk.npy"},
               "cannot write 'none/dk.npy' (--grad-key): No such file or directory");
  expect_error(2, {"--grad-output", "q.npy", "--grad-query", "dq.npy", "--out", "o.npy"},
               "grad_output has shape [2, 4, 5, 8]; [2, 4, 5, 6] is expected");
  EXPECT_EQ(heed::test::read_file(folder / "dq.npy"), "old");
}

}  // namespace
