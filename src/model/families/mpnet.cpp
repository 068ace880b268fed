// MPNet (Song et al. 2020): BERT's layers with a bias of scores by the distance of two tokens, the same in
// all layers.
//
//   s_ij = <q_i, k_j> / sqrt(d) + B[bucket(j - i)]      B [32, H], one column a head
//
// The buckets are T5's (Raffel et al. 2020): 8 exact distances on each side, then 8 that grow by a
// constant factor up to 128. Positions count from the padding token, whose id is 1, as in RoBERTa.
// families/encoder.hpp has the rest.
#include <utility>

#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kPadding = 1;

constexpr EncoderBlockNames kMpnetBlock = {"attention.attn.q", "attention.attn.k",    "attention.attn.v",
                                           "attention.attn.o", "attention.LayerNorm", "intermediate.dense",
                                           "output.dense",     "output.LayerNorm"};

std::unique_ptr<const Family> make_mpnet(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  read_sizes(config, info);
  const std::int64_t inner = config.integer("intermediate_size", 1, kMaxWidth), dim = info.model_dim;
  const std::int64_t positions = config.integer("max_position_embeddings", kPadding + 2, kMaxContext);
  const double epsilon = epsilon_of(config, "layer_norm_eps");
  const std::string root = root_of(weights, "mpnet."), at = root + "embeddings.";
  EncoderWeights made;
  made.padding = kPadding;
  info.context = positions - kPadding - 1;
  made.tokens = weights.matrix(at + "word_embeddings.weight", info.vocabulary, dim);
  made.positions = weights.matrix(at + "position_embeddings.weight", positions, dim);
  made.norm = layer_norm_weights(weights, at + "LayerNorm", dim, epsilon);
  made.distance_bias =
      weights.matrix(root + "encoder.relative_attention_bias.weight", kDistanceBuckets, info.heads);
  made.blocks = read_encoder_blocks(weights, root + "encoder.layer.", kMpnetBlock, info, inner, epsilon,
                                    activation_of(config, "hidden_act"));
  made.head = read_lm_head(config, weights, made.tokens);
  weights.leave(at + "position_ids");
  leave_heads(weights, root,
              {"pooler.dense", "classifier.dense", "classifier.out_proj", "classifier", "qa_outputs"});
  return make_encoder(std::move(made), info);
}

}  // namespace

const FamilyEntry kMpnet = {
    .model_type = "mpnet",
    .keys = {.read = R"({"vocab_size": 30527, "hidden_size": 768, "num_hidden_layers": 12,
                 "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
                 "hidden_act": "gelu", "layer_norm_eps": 1e-12, "tie_word_embeddings": true})",
             .only = R"({"is_causal": false, "relative_attention_num_buckets": 32})"},
    .make = make_mpnet};

}  // namespace heed::detail
