// Lesson 5: multi-head attention as a module, for an encoder and for a decoder (notebook 004).
//
// Two faults of the notebook are not repeated here:
// - It merges the heads by reshaping [B, H, T, d] to [B, T, H d]. A reshape keeps the order in memory, which
//   is head by head. So one "position" of its result holds several positions of one head. The heads of each
//   position must first be placed side by side: [B, T, H, d], then [B, T, H d].
// - Its `if mask:` needs one truth value, but the mask has many elements. PyTorch refuses that ("ambiguous"),
//   so the module fails for every mask. Here causal attention is an option of the call.
// The last section shows how the first fault changes the output.
#include <iostream>
#include <limits>
#include <string>

#include "heed/attention/attention.hpp"
#include "heed/nn/layers.hpp"
#include "heed/random.hpp"
#include "notebook.hpp"

namespace {

using heed::Generator;
using heed::Need;
using heed::ScoresStage;
using heed::Tensor;
using heed::TensorView;
using heed::nn::Linear;
using heed::nn::MultiHeadAttention;
using lesson::Notebook;

struct Projections {
  TensorView q, k, v;  // [B, H, T, d]
};

// Splits qkv [B, T, H 3 d] into views [B, H, T, d]. qkv holds q, k and v of each head side by side. It is
// reshaped by head, permuted to put the heads first, and cut in three. Nothing is copied.
Projections split(Notebook& notebook, const std::string& name, const TensorView& qkv,
                  std::int64_t num_heads) {
  const std::int64_t head_dim = qkv.size(2) / num_heads / 3;
  const TensorView by_head = qkv.reshape({qkv.size(0), qkv.size(1), num_heads, 3 * head_dim});
  const TensorView heads_first = by_head.permute({0, 2, 1, 3});
  Projections parts{heads_first.narrow(-1, 0, head_dim), heads_first.narrow(-1, head_dim, head_dim),
                    heads_first.narrow(-1, 2 * head_dim, head_dim)};
  notebook.print_shape(name + "qkv", qkv);
  notebook.print_shape(name + "qkv.by_head", by_head);
  notebook.print_shape(name + "qkv.heads_first", heads_first);
  notebook.print_shape(name + "q", parts.q);
  notebook.print_shape(name + "k", parts.k);
  notebook.print_shape(name + "v", parts.v);
  return parts;
}

// Returns a mask of 0 where j <= i, and -inf where key j comes after query i.
Tensor causal_mask(std::int64_t length) {
  Tensor mask({length, length});
  for (std::int64_t i = 0; i < length; ++i)
    for (std::int64_t j = i + 1; j < length; ++j)
      mask.at<float>(i, j) = -std::numeric_limits<float>::infinity();
  return mask;
}

void step_by_step(Notebook& notebook, Generator& generator) {
  const std::int64_t batch_size = 1, sequence_length = 4, d_model = 512, num_heads = 8;

  Notebook::section("One linear layer makes the queries, keys and values of all heads");
  const Tensor x = randn(generator, {batch_size, sequence_length, d_model});
  notebook.print("x", x);
  const Linear qkv_layer(d_model, 3 * d_model, true, generator);
  const Tensor qkv = qkv_layer.forward(x);
  const auto [q, k, v] = split(notebook, "", qkv, num_heads);

  Notebook::section("Scores, and what the mask leaves of them");
  const auto raw = heed::attention(q, k, v, {.need = Need::scores, .scores_stage = ScoresStage::raw});
  notebook.print_shape("scaled", raw.scores);
  const Tensor mask = causal_mask(sequence_length);
  notebook.print("mask[0][0]", mask);
  // A mask that is added to the scores is a bias. {.causal = true} does the same without a matrix.
  const auto masked = heed::attention(q, k, v, {.bias = mask, .need = Need::scores | Need::weights});
  notebook.print("(scaled + mask)[0][0]", masked.scores.view().select(0, 0).select(0, 0));

  Notebook::section("Each word mixes the values of the words so far; then the heads are put side by side");
  notebook.print("attention[0][0]", masked.weights.view().select(0, 0).select(0, 0));
  notebook.print_shape("values", masked.output);
  const Tensor merged = heed::nn::merge_heads(masked.output);
  notebook.print_shape("values.merged", merged);

  Notebook::section("A last linear layer lets the heads speak to one another");
  const Linear linear_layer(d_model, d_model, true, generator);
  notebook.print_shape("out", linear_layer.forward(merged));
}

void all_together(Notebook& notebook, Generator& generator) {
  Notebook::section("Putting it all together: 30 sequences through an encoder (no mask)");
  const std::int64_t batch_size = 30, sequence_length = 5, d_model = 512, num_heads = 8;
  const Tensor x = randn(generator, {batch_size, sequence_length, d_model});
  const Linear qkv_layer(d_model, 3 * d_model, true, generator);
  const Linear linear_layer(d_model, d_model, true, generator);

  notebook.print_shape("model.x", x);
  const Tensor qkv = qkv_layer.forward(x);
  const auto [q, k, v] = split(notebook, "model.", qkv, num_heads);
  const auto attended = heed::attention(q, k, v, {.need = Need::weights});
  notebook.print_shape("model.values", attended.output);
  notebook.print_shape("model.attention", attended.weights);
  const Tensor merged = heed::nn::merge_heads(attended.output);
  notebook.print_shape("model.values.merged", merged);
  const Tensor out = linear_layer.forward(merged);
  notebook.print_shape("model.out", out);
  notebook.print("model.out", out);

  Notebook::section("heed has this as a layer, which takes the same matrices");
  const auto layer =
      MultiHeadAttention::from_fused_qkv(qkv_layer.weight, qkv_layer.bias, linear_layer, num_heads);
  const Tensor layer_out = layer.forward(x).output;
  notebook.keep("layer.out", layer_out);
  notebook.print("layer.out[0]", layer_out.view().select(0, 0));
}

// Turns [B, H, T, d] into [B, T, H d] as the notebook does: it keeps the memory and changes only the shape.
Tensor reshaped_as_in_notebook(const Tensor& values) {
  return Tensor(values).reshaped({values.size(0), values.size(2), values.size(1) * values.size(3)});
}

// Shows what the notebook's way of merging heads does to the same values, at a size that can be checked by
// hand.
void faults_side_by_side(Notebook& notebook) {
  const std::int64_t batch_size = 3, sequence_length = 5, d_model = 32, num_heads = 4;
  Generator generator(11);
  const Linear qkv_layer(d_model, 3 * d_model, true, generator);
  const Linear linear_layer(d_model, d_model, true, generator);
  const Tensor x = randn(generator, {batch_size, sequence_length, d_model});
  const auto model =
      MultiHeadAttention::from_fused_qkv(qkv_layer.weight, qkv_layer.bias, linear_layer, num_heads);

  Notebook::section("Two faults of the notebook");
  std::cout
      << "It reshapes [B, H, T, d] to [B, T, H d] without bringing the heads of a position together: here "
         "its\n"
         "'position 0' is head 0 at the positions 0 to 3, and the last layer mixes those.\n"
         "Its `if mask:` raises an error for every mask, so its decoder cannot run at all; what is shown as\n"
         "the notebook's below is its reshape with a mask that works.\n";

  for (const bool causal : {false, true}) {
    const std::string side = causal ? "decoder" : "encoder";
    Notebook::section("The " + side + ", heads joined rightly and as in the notebook");
    const auto result = model.forward(x, {.causal = causal, .need = Need::weights});
    const Tensor as_in_notebook = linear_layer.forward(reshaped_as_in_notebook(result.attention.output));
    notebook.keep(side + "/x", x);
    notebook.keep(side + "/qkv_weight", qkv_layer.weight);
    notebook.keep(side + "/qkv_bias", *qkv_layer.bias);
    notebook.keep(side + "/linear_weight", linear_layer.weight);
    notebook.keep(side + "/linear_bias", *linear_layer.bias);
    notebook.print_shape(side + "/attention", result.attention.weights);
    notebook.print_shape(side + "/values", result.attention.output);
    notebook.keep(side + "/out_heads_merged", result.output);
    notebook.keep(side + "/out_as_in_notebook", as_in_notebook);
    notebook.print(side + "/out_heads_merged[0, 0]", result.output.view().select(0, 0).select(0, 0));
    notebook.print(side + "/out_as_in_notebook[0, 0]", as_in_notebook.view().select(0, 0).select(0, 0));
  }
}

void multihead(Notebook& notebook) {
  Generator generator(4);  // the notebook sets no seed: only its shapes can be reproduced, not its numbers
  step_by_step(notebook, generator);
  all_together(notebook, generator);
  faults_side_by_side(notebook);
}

}  // namespace

int main(int argc, char** argv) { return lesson::run(argc, argv, multihead); }
