#include "model/gguf/gguf_architecture.hpp"

#include <cmath>

#include "io/fault.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::GgufFile;
using io::detail::GgufValue;
using Json = nlohmann::ordered_json;

constexpr GgufTensorName kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr GgufTensorName kInBlocks[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
constexpr GgufTensorName kLlamaNorms[] = {{"ffn_norm", "post_attention_layernorm"}};
constexpr GgufTensorName kGemmaNorms[] = {{"post_attention_norm", "post_attention_layernorm"},
                                          {"ffn_norm", "pre_feedforward_layernorm"},
                                          {"post_ffw_norm", "post_feedforward_layernorm"}};

constexpr GgufTensorName kOlmoNorms[] = {{"post_attention_norm", "post_attention_layernorm"},
                                         {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr GgufTensorName kPhiNames[] = {{"ffn_norm", "post_attention_layernorm"},
                                        {"attn_qkv", "self_attn.qkv_proj"},
                                        {"ffn_up", "mlp.gate_up_proj"}};

constexpr GgufTensorName kStarcoderNames[] = {
    {"ffn_norm", "post_attention_layernorm"}, {"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
constexpr GgufTensorName kMixtralNames[] = {{"ffn_norm", "post_attention_layernorm"},
                                            {"ffn_gate_inp", "block_sparse_moe.gate"},
                                            {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                            {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                            {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}};
constexpr GgufTensorName kQwenMoeNames[] = {{"ffn_norm", "post_attention_layernorm"},
                                            {"ffn_gate_inp", "mlp.gate"},
                                            {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                            {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                            {"ffn_down_exps", "mlp.experts.*.down_proj"}};

constexpr GgufTensorName kGptOssNames[] = {{"post_attention_norm", "post_attention_layernorm"},
                                           {"attn_sinks", "self_attn.sinks"},
                                           {"ffn_gate_inp", "mlp.router"},
                                           {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                           {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                           {"ffn_down_exps", "mlp.experts.*.down_proj"}};

constexpr GgufTensorName kGpt2Outside[] = {
    {"token_embd", "wte"}, {"position_embd", "wpe"}, {"output_norm", "ln_f"}, {"output", "lm_head"}};
constexpr GgufTensorName kGpt2Names[] = {
    {"attn_norm", "ln_1"}, {"attn_qkv", "attn.c_attn.by_outputs"}, {"attn_output", "attn.c_proj.by_outputs"},
    {"ffn_norm", "ln_2"},  {"ffn_up", "mlp.c_fc.by_outputs"},      {"ffn_down", "mlp.c_proj.by_outputs"}};

constexpr GgufTensorName kNeoxOutside[] = {{"token_embd", "gpt_neox.embed_in"},
                                           {"output_norm", "gpt_neox.final_layer_norm"},
                                           {"output", "embed_out"}};
constexpr GgufTensorName kNeoxNames[] = {{"attn_qkv", "attention.query_key_value"},
                                         {"attn_output", "attention.dense"},
                                         {"ffn_norm", "post_attention_layernorm"},
                                         {"ffn_up", "mlp.dense_h_to_4h"},
                                         {"ffn_down", "mlp.dense_4h_to_h"}};

constexpr GgufTensorName kBertOutside[] = {{"token_embd", "embeddings.word_embeddings"},
                                           {"position_embd", "embeddings.position_embeddings"},
                                           {"token_types", "embeddings.token_type_embeddings"},
                                           {"token_embd_norm", "embeddings.LayerNorm"}};
constexpr GgufTensorName kBertNames[] = {{"attn_q", "attention.self.query"},
                                         {"attn_k", "attention.self.key"},
                                         {"attn_v", "attention.self.value"},
                                         {"attn_output", "attention.output.dense"},
                                         {"attn_output_norm", "attention.output.LayerNorm"},
                                         {"ffn_up", "intermediate.dense"},
                                         {"ffn_down", "output.dense"},
                                         {"layer_output_norm", "output.LayerNorm"}};

constexpr GgufTensorName kNomicOutside[] = {{"token_embd", "embeddings.word_embeddings"},
                                            {"token_types", "embeddings.token_type_embeddings"},
                                            {"token_embd_norm", "emb_ln"}};
constexpr GgufTensorName kNomicNames[] = {{"attn_qkv", "attn.Wqkv"},     {"attn_output", "attn.out_proj"},
                                          {"attn_output_norm", "norm1"}, {"ffn_up", "mlp.fc11"},
                                          {"ffn_gate", "mlp.fc12"},      {"ffn_down", "mlp.fc2"},
                                          {"layer_output_norm", "norm2"}};

// Scores are divided by the square root of this; the largest models have a value of their own.
std::int64_t score_divisor(const Json& config, std::int64_t layers_of_largest) {
  const auto heads = config["num_attention_heads"].get<std::int64_t>();  // not checked yet
  if (config["num_hidden_layers"] == layers_of_largest && heads > 0)
    return config["hidden_size"].get<std::int64_t>() / heads;
  return config["head_dim"].get<std::int64_t>();
}

// Defaults of missing values are llama.cpp's (llama-model.cpp): windows of 4096, caps of 50 and 30.
void complete_gemma2(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  const GgufFile& file = parts.front();
  config["sliding_window"] = file.integer_or(root + "attention.sliding_window", 4096);
  config["attn_logit_softcapping"] = file.real_or(root + "attn_logit_softcapping", 50);
  config["final_logit_softcapping"] = file.real_or(root + "final_logit_softcapping", 30);
  config["query_pre_attn_scalar"] = score_divisor(config, 46);
}

// Without a window all layers see all keys. Every sixth layer does, unless the file has another pattern.
void complete_gemma3(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  const GgufFile& file = parts.front();
  const std::int64_t window = file.integer_or(root + "attention.sliding_window", 0);
  config["sliding_window"] = window == 0 ? Json() : Json(window);
  config["sliding_window_pattern"] =
      window == 0 ? 1 : file.integer_or(root + "attention.sliding_window_pattern", 6);
  config["rope_local_base_freq"] = file.real_or(root + "rope.freq_base_swa", 10000);
  if (const double cap = file.real_or(root + "final_logit_softcapping", 0); cap != 0)
    config["final_logit_softcapping"] = cap;
  config["query_pre_attn_scalar"] = score_divisor(config, 62);
}

// llama.cpp has no other interval than 4.
void complete_smollm3(std::span<const GgufFile>, const std::string&, Json& config) {
  config["no_rope_layer_interval"] = 4;
}

// Phi-3's first files have no window.
void complete_phi3(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  const std::int64_t window = parts.front().integer_or(root + "attention.sliding_window", 0);
  if (window != 0) config["sliding_window"] = window;
}

// Without a scale of scores, they are divided by the root of the heads' width.
void complete_granite(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  const GgufFile& file = parts.front();
  const double width = config["head_dim"].get<double>();
  const auto factor = [&](const char* name, double fallback) {
    const double value = file.real_or(root + name, 0);
    return value == 0 ? fallback : value;
  };
  config["attention_multiplier"] = factor("attention.scale", 1 / std::sqrt(width));
  config["embedding_multiplier"] = factor("embedding_scale", 1);
  config["residual_multiplier"] = factor("residual_scale", 1);
  config["logits_scaling"] = factor("logit_scale", 1);
}

void drop(Json& config, std::initializer_list<const char*> names) {
  for (const char* name : names) config.erase(name);
}

// For families whose heads are a share of the stream.
void drop_head_dim(std::span<const GgufFile> parts, Json& config) {
  const auto heads = config["num_attention_heads"].get<std::int64_t>();
  std::int64_t all = 0;
  if (__builtin_mul_overflow(config["head_dim"].get<std::int64_t>(), heads, &all) ||
      all != config["hidden_size"].get<std::int64_t>())
    fail(parts.front().subject(), "has heads that together are not as wide as the stream");
  config.erase("head_dim");
}

void complete_starcoder2(std::span<const GgufFile>, const std::string&, Json& config) {
  config["use_bias"] = config.value("attention_bias", false);
  config.erase("attention_bias");
}

// A block without a norm before the MLP is parallel, as in llama.cpp.
void complete_stablelm(std::span<const GgufFile> parts, const std::string&, Json& config) {
  config["use_qkv_bias"] = config.value("attention_bias", false);
  config.erase("attention_bias");
  drop_head_dim(parts, config);
  config["use_parallel_residual"] = !has_tensor(parts, "blk.0.ffn_norm.weight");
}

void complete_mixtral(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  config["num_local_experts"] = parts.front().at(root + "expert_count").integer();
  config["num_experts_per_tok"] = parts.front().at(root + "expert_used_count").integer();
}

// The weights of the chosen experts sum to 1, as in llama.cpp.
void complete_qwen3_moe(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  config["num_experts"] = parts.front().at(root + "expert_count").integer();
  config["num_experts_per_tok"] = parts.front().at(root + "expert_used_count").integer();
  config["moe_intermediate_size"] = parts.front().at(root + "expert_feed_forward_length").integer();
  config["norm_topk_prob"] = true;
}

// The model's own ramp of YaRN is not rounded to pairs.
void complete_gpt_oss(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  const GgufFile& file = parts.front();
  config["num_local_experts"] = file.at(root + "expert_count").integer();
  config["num_experts_per_tok"] = file.at(root + "expert_used_count").integer();
  config["intermediate_size"] = file.at(root + "expert_feed_forward_length").integer();
  config["sliding_window"] = file.at(root + "attention.sliding_window").integer();
  if (!config.contains("rope_scaling")) config["rope_scaling"] = {{"rope_type", "default"}};
  config["rope_scaling"]["truncate"] = false;
}

void complete_gpt2(std::span<const GgufFile> parts, const std::string&, Json& config) {
  drop_head_dim(parts, config);
  config["n_inner"] = config["intermediate_size"];
  drop(config, {"intermediate_size", "num_key_value_heads", "rope_theta"});
}

void complete_gpt_neox(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  drop_head_dim(parts, config);
  config["attention_bias"] = has_tensor(parts, "blk.0.attn_qkv.bias");
  config["use_parallel_residual"] = parts.front().at(root + "use_parallel_residual").flag();
  config["rotary_emb_base"] = config["rope_theta"];
  config["rotary_pct"] = config["partial_rotary_factor"];
  drop(config, {"num_key_value_heads", "rope_theta", "partial_rotary_factor"});
}

// In llama.cpp a model without attention.causal is causal, which encoders refuse.
void complete_nomic_bert(std::span<const GgufFile> parts, const std::string&, Json& config) {
  drop_head_dim(parts, config);
  if (!config.contains("is_causal")) config["is_causal"] = true;
  const io::detail::GgufTensor* types = tensor_named(parts, "token_types.weight").tensor;
  config["type_vocab_size"] = types != nullptr && types->sizes.size() == 2 ? types->sizes[1] : 0;
  drop(config, {"num_key_value_heads", "attention_bias"});
}

void complete_bert(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  complete_nomic_bert(parts, root, config);
  config.erase("rope_theta");
}

const std::vector<GgufArchitecture>& architectures() {
  static const std::vector<GgufArchitecture> all = {
      {.name = "llama", .model_type = "llama", .names = kLlamaNorms, .interleaved = true},
      {.name = "llama",
       .model_type = "mixtral",
       .names = kMixtralNames,
       .interleaved = true,
       .experts = true,
       .complete = complete_mixtral},
      {.name = "qwen2", .model_type = "qwen2", .names = kLlamaNorms},
      {.name = "qwen3", .model_type = "qwen3", .names = kLlamaNorms},
      {.name = "qwen3moe",
       .model_type = "qwen3_moe",
       .names = kQwenMoeNames,
       .experts = true,
       .values = {"expert_feed_forward_length"},
       .complete = complete_qwen3_moe},
      {.name = "gpt-oss",
       .model_type = "gpt_oss",
       .names = kGptOssNames,
       .experts = true,
       .values = {"expert_feed_forward_length", "attention.sliding_window"},
       .complete = complete_gpt_oss},
      {.name = "starcoder2",
       .model_type = "starcoder2",
       .names = kStarcoderNames,
       .epsilon = {"attention.layer_norm_epsilon", "norm_epsilon"},
       .complete = complete_starcoder2},
      {.name = "stablelm",
       .model_type = "stablelm",
       .names = kLlamaNorms,
       .partial_rope = true,
       .epsilon = {"attention.layer_norm_epsilon", "layer_norm_eps"},
       .values = {"use_parallel_residual"},
       .complete = complete_stablelm},
      {.name = "gpt2",
       .model_type = "gpt2",
       .names = kGpt2Names,
       .outside = kGpt2Outside,
       .blocks = "h.",
       .epsilon = {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
       .complete = complete_gpt2},
      {.name = "gptneox",
       .model_type = "gpt_neox",
       .names = kNeoxNames,
       .outside = kNeoxOutside,
       .blocks = "gpt_neox.layers.",
       .parts_in_turn = true,
       .partial_rope = true,
       .epsilon = {"attention.layer_norm_epsilon", "layer_norm_eps"},
       .values = {"use_parallel_residual"},
       .complete = complete_gpt_neox},
      {.name = "bert",
       .model_type = "bert",
       .names = kBertNames,
       .outside = kBertOutside,
       .blocks = "encoder.layer.",
       .epsilon = {"attention.layer_norm_epsilon", "layer_norm_eps"},
       .complete = complete_bert},
      {.name = "nomic-bert",
       .model_type = "nomic_bert",
       .names = kNomicNames,
       .outside = kNomicOutside,
       .blocks = "encoder.layers.",
       .epsilon = {"attention.layer_norm_epsilon", "layer_norm_eps"},
       .complete = complete_nomic_bert},
      {.name = "olmo2", .model_type = "olmo2", .names = kOlmoNorms},
      {.name = "phi3",
       .model_type = "phi3",
       .names = kPhiNames,
       .partial_rope = true,
       .values = {"attention.sliding_window"},
       .complete = complete_phi3},
      {.name = "smollm3",
       .model_type = "smollm3",
       .names = kLlamaNorms,
       .interleaved = true,
       .complete = complete_smollm3},
      {.name = "granite",
       .model_type = "granite",
       .names = kLlamaNorms,
       .interleaved = true,
       .values = {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"},
       .complete = complete_granite},
      {.name = "gemma", .model_type = "gemma", .names = kLlamaNorms, .norm_offset = 1},
      {.name = "gemma2",
       .model_type = "gemma2",
       .names = kGemmaNorms,
       .norm_offset = 1,
       .values = {"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"},
       .complete = complete_gemma2},
      {.name = "gemma3",
       .model_type = "gemma3_text",
       .names = kGemmaNorms,
       .norm_offset = 1,
       .values = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa",
                  "final_logit_softcapping"},
       .complete = complete_gemma3}};
  return all;
}

// Whether `name` is `pattern`, in which "*" stands for digits.
bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos) return name == pattern;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() < pattern.size() || !name.starts_with(before) || !name.ends_with(after)) return false;
  name.remove_prefix(before.size());
  name.remove_suffix(after.size());
  return name.find_first_not_of("0123456789") == name.npos;
}

// Calls found(entry) for an architecture's own entries, then for those that all share; returns its first
// result that is not empty.
template <class Found>
std::string first_of(std::span<const GgufTensorName> own, std::span<const GgufTensorName> shared,
                     Found found) {
  for (const std::span<const GgufTensorName> names : {own, shared})
    for (const GgufTensorName& one : names)
      if (std::string name = found(one); !name.empty()) return name;
  return {};
}

}  // namespace

PlacedTensor tensor_named(std::span<const GgufFile> parts, std::string_view name) {
  for (const GgufFile& file : parts)
    for (const io::detail::GgufTensor& one : file.tensors())
      if (one.name == name) return {&file, &one};
  return {};
}

bool has_tensor(std::span<const GgufFile> parts, std::string_view name) {
  return tensor_named(parts, name).tensor != nullptr;
}

const GgufArchitecture& architecture_of(const GgufFile& file) {
  const std::string_view name = file.at("general.architecture").text();
  const bool experts = file.integer_or(std::string(name) + ".expert_count", 0) != 0;
  const GgufArchitecture* found = nullptr;
  std::string names;
  std::string_view last;
  for (const GgufArchitecture& one : architectures()) {
    if (one.name == name && (found == nullptr || one.experts == experts)) found = &one;
    if (one.name != last) names += (names.empty() ? "" : ", ") + std::string(one.name);
    last = one.name;
  }
  if (found != nullptr) return *found;
  fail(file.subject(), "has general.architecture ", io::detail::printable(name), "; heed runs ", names,
       " from GGUF");
}

std::string safetensors_name(const GgufArchitecture& architecture, std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string ending(name.substr(dot));
  std::string_view stem = name.substr(0, dot);
  if (ending != ".weight" && ending != ".bias") return {};
  if (!stem.starts_with("blk."))
    return first_of(architecture.outside, kOutside, [&](const GgufTensorName& one) {
      return one.gguf == stem ? std::string(one.safetensors) + ending : std::string();
    });
  stem.remove_prefix(4);
  const std::size_t end = stem.find_first_not_of("0123456789");  // of the number of the block
  if (end == std::string_view::npos || stem[end] != '.') return {};
  return first_of(architecture.names, kInBlocks, [&](const GgufTensorName& one) -> std::string {
    if (one.gguf != stem.substr(end + 1)) return {};
    const std::string own = std::string(architecture.blocks) + std::string(stem.substr(0, end)) + "." +
                            std::string(one.safetensors);
    return own.ends_with(".sinks") ? own : own + ending;  // a parameter, not a layer with a weight
  });
}

std::string gguf_name(const GgufArchitecture& architecture, const std::string& name) {
  const std::size_t block = architecture.blocks.size(), dot = name.rfind('.');
  const std::string ending = name.substr(dot), stem = name.substr(0, dot);
  std::string found = first_of(architecture.outside, kOutside, [&](const GgufTensorName& one) {
    return one.safetensors == stem ? std::string(one.gguf) + ending : std::string();
  });
  const std::size_t end = stem.find('.', block);
  if (found.empty() && end != std::string::npos)
    found = first_of(architecture.names, kInBlocks, [&](const GgufTensorName& one) -> std::string {
      const std::string in_block = "blk." + stem.substr(block, end - block) + "." + std::string(one.gguf);
      if (one.safetensors == std::string_view(name).substr(end + 1)) return in_block + ".weight";
      return matches(one.safetensors, std::string_view(stem).substr(end + 1)) ? in_block + ending : "";
    });
  return found.empty() ? name : found;
}

}  // namespace heed::detail
