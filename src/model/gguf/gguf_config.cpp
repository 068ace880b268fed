#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/message.hpp"
#include "io/fault.hpp"
#include "model/files/weight_format.hpp"
#include "model/gguf/gguf_architecture.hpp"
#include "model/gguf/gguf_model.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::GgufFile;
using io::detail::GgufTensor;
using io::detail::GgufValue;
using Json = nlohmann::ordered_json;

struct NameOfValue {
  std::string_view gguf, config;
};
constexpr std::array<NameOfValue, 5> kSizes = {{{"block_count", "num_hidden_layers"},
                                                {"context_length", "max_position_embeddings"},
                                                {"embedding_length", "hidden_size"},
                                                {"feed_forward_length", "intermediate_size"},
                                                {"attention.head_count", "num_attention_heads"}}};
// Keys that are read individually below.
constexpr std::array<std::string_view, 15> kReadValues = {"attention.head_count_kv",
                                                          "attention.key_length",
                                                          "attention.value_length",
                                                          "attention.causal",
                                                          "rope.freq_base",
                                                          "rope.dimension_count",
                                                          "rope.scaling.type",
                                                          "rope.scaling.factor",
                                                          "rope.scaling.attn_factor",
                                                          "rope.scaling.original_context_length",
                                                          "rope.scaling.yarn_beta_fast",
                                                          "rope.scaling.yarn_beta_slow",
                                                          "rope.scale_linear",
                                                          "expert_count",
                                                          "vocab_size"};
// Keys without effect: pooling makes one vector of a text. Without experts, none is chosen.
constexpr std::array<std::string_view, 4> kUnusedValues = {"pooling_type", "rope.scaling.finetuned",
                                                           "expert_used_count", "tensor_data_layout"};

bool is_known(const GgufArchitecture& architecture, std::string_view name) {
  const auto is_same = [&](std::string_view one) { return one == name; };
  return name == architecture.epsilon.gguf || std::ranges::any_of(architecture.values, is_same) ||
         std::ranges::any_of(kReadValues, is_same) || std::ranges::any_of(kUnusedValues, is_same) ||
         std::ranges::any_of(kSizes, [&](const NameOfValue& one) { return one.gguf == name; });
}

// A file may state the number of tokens again.
void check_vocabulary(const GgufFile& file, const std::string& root, std::int64_t rows) {
  const GgufValue* given = file.find(root + "vocab_size");
  if (given == nullptr) return;
  const std::string said = "has " + root + "vocab_size " + std::to_string(given->integer()) + "; ";
  if (given->integer() != rows) fail(file.subject(), said, "token_embd.weight has ", counted(rows, "row"));
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && std::ssize(tokens->texts()) != given->integer())
    fail(file.subject(), said, "tokenizer.ggml.tokens has ", tokens->texts().size());
}

// "rope.dimension_count" is the number of rotated components; values are as wide as keys.
void read_head_width(const GgufFile& file, const GgufArchitecture& architecture, const std::string& root,
                     Json& config) {
  const auto width = config["head_dim"].get<std::int64_t>();
  const auto require_width = [&](const char* name) {
    const std::int64_t given = file.integer_or(root + name, width);
    if (given != width) fail(file.subject(), "has ", root, name, " ", given, "; heads are ", width, " wide");
  };
  require_width("attention.value_length");
  if (!architecture.partial_rope) return require_width("rope.dimension_count");
  const std::int64_t components = std::max<std::int64_t>(1, width);
  const double share = static_cast<double>(file.integer_or(root + "rope.dimension_count", components)) /
                       static_cast<double>(components);
  // Rounded up, since the product with the width is rounded down: 88 * (30. / 88) is below 30.
  config["partial_rotary_factor"] = std::nextafter(share, 1.0);
}

// Llama 3's divisor of a pair's frequency (RopeRules: low 1, high 4, context 8192).
double llama3_divisor(double frequency, double factor) {
  constexpr double kContext = 8192, kLow = 1, kHigh = 4;
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < kContext / kHigh) return 1;
  if (wavelength > kContext / kLow) return factor;
  const double smooth = (kContext / wavelength - kLow) / (kHigh - kLow);
  return 1 / ((1 - smooth) / factor + smooth);
}

// The ends of a turn and of a message end a text too. Many files name only one of them, so llama.cpp
// (llama-vocab.cpp) also ends texts at tokens with these names. gpt-oss goes on after <|end|>.
void read_end_tokens(const GgufFile& file, Json& config) {
  std::set<std::int64_t> ends;
  for (const char* token : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const GgufValue* end = file.find("tokenizer.ggml." + std::string(token))) ends.insert(end->integer());
  std::map<std::string_view, std::int64_t> named;
  for (const char* name : {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>",
                           "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
                           "<EOT>", "_<EOT>", "<end_of_utterance>"})
    named[name] = -1;
  std::int64_t id = 0;
  if (const GgufValue* tokens = file.find("tokenizer.ggml.tokens"))
    for (const std::string_view text : tokens->texts()) {
      if (const auto found = named.find(text); found != named.end()) found->second = id;
      ++id;
    }
  if (named["<|return|>"] >= 0 && named["<|call|>"] >= 0) named.erase("<|end|>");
  for (const auto& [name, place] : named)
    if (place >= 0) ends.insert(place);
  for (const std::int64_t end : ends) config["eos_token_id"].push_back(end);
}

// The numbers of a tensor of F32, one for each rotated pair.
std::vector<float> numbers_of_pairs(const GgufFile& file, const GgufTensor& tensor) {
  const auto bytes = static_cast<std::uint64_t>(tensor.count) * sizeof(float);
  if (tensor.type != 0 || tensor.count > 4096 || bytes > file.size() - tensor.offset)
    fail(file.subject(), "has a tensor ", tensor.name, " that is not at most 4096 numbers of F32");
  std::vector<float> numbers(static_cast<std::size_t>(tensor.count));
  read_numbers(kStoredF32, file.data() + tensor.offset, tensor.count, numbers.data());
  return numbers;
}

// Such files store a divisor for each pair instead of Llama 3's rule. The rule is recovered from the largest
// divisor.
Json rope_of_divisors(const GgufFile& file, const GgufTensor& tensor, double base, std::int64_t pairs) {
  const std::vector<float> divisors = numbers_of_pairs(file, tensor);
  if (std::ssize(divisors) != pairs)
    fail(file.subject(), "has a tensor ", tensor.name, " with ", counted(divisors.size(), "number"), "; ",
         pairs, pairs == 1 ? " is" : " are", " expected, one for each rotated pair");
  const double factor = std::round(*std::ranges::max_element(divisors) * 1024) / 1024;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(divisors.size());
    const double expected = llama3_divisor(std::pow(base, -exponent), factor);
    if (!(std::abs(static_cast<double>(divisors[i]) - expected) <= 1e-4 * expected))
      fail(file.subject(),
           "has a tensor rope_freqs.weight that does not follow Llama 3's rule, the only one that heed "
           "supports");
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

// Ding et al. 2024. Texts beyond the trained length have the long factors.
Json longrope_of(std::span<const GgufFile> parts, const std::string& root) {
  const GgufFile& file = parts.front();
  Json made = {{"rope_type", "longrope"}};
  for (const char* kind : {"long", "short"}) {
    const std::string name = "rope_factors_" + std::string(kind) + ".weight";
    const auto [holder, factors] = tensor_named(parts, name);
    if (factors == nullptr) fail(file.subject(), "has no tensor ", name);
    made[std::string(kind) + "_factor"] = numbers_of_pairs(*holder, *factors);
  }
  made["attention_factor"] = file.real_or(root + "rope.scaling.attn_factor", 1);
  return made;
}

// A scaling without a type is linear, and a factor of 0 means none, as in llama.cpp. Null: no scaling.
Json scaling_of(const GgufFile& file, const std::string& root) {
  std::string_view type = "linear";
  if (const GgufValue* given = file.find(root + "rope.scaling.type")) type = given->text();
  if (type != "none" && type != "linear" && type != "yarn")
    fail(file.subject(), "has ", root, "rope.scaling.type ", io::detail::printable(type),
         "; none, linear, yarn or Llama 3's divisors are expected");
  const auto real = [&](const char* name, double fallback) {
    const double value = file.real_or(root + "rope." + name, 0);
    return value == 0 ? fallback : value;
  };
  const double factor = real("scaling.factor", real("scale_linear", 1)),
               attention = real("scaling.attn_factor", 1);
  if (type != "yarn" && attention != 1)
    fail(file.subject(), "has ", root, "rope.scaling.attn_factor without YaRN, which heed does not support");
  if (type == "none" || factor == 1) return {};
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  return {{"rope_type", "yarn"},
          {"factor", factor},
          {"attention_factor", attention * (factor <= 1 ? 1 : 0.1 * std::log(factor) + 1)},
          {"beta_fast", real("scaling.yarn_beta_fast", 32)},
          {"beta_slow", real("scaling.yarn_beta_slow", 1)},
          {"original_max_position_embeddings", file.integer_or(root + "rope.scaling.original_context_length",
                                                               file.at(root + "context_length").integer())}};
}

void read_rope(std::span<const GgufFile> parts, const std::string& root, Json& config) {
  const GgufFile& file = parts.front();
  const double base = file.real_or(root + "rope.freq_base", 10000);
  config["rope_theta"] = base;
  if (has_tensor(parts, "rope_factors_long.weight") || has_tensor(parts, "rope_factors_short.weight")) {
    const double factor = file.real_or(root + "rope.scaling.factor", 0);
    if (factor != 0 && factor != 1)
      fail(file.subject(), "has both rope_factors_long.weight and ", root,
           "rope.scaling.factor; one is expected");
    config["rope_scaling"] = longrope_of(parts, root);
    config["original_max_position_embeddings"] =
        file.at(root + "rope.scaling.original_context_length").integer();
    return;
  }
  const Json scaling = scaling_of(file, root);
  const auto [holder, divisors] = tensor_named(parts, "rope_freqs.weight");
  if (divisors != nullptr && !scaling.is_null())
    fail(file.subject(), "has both rope_freqs.weight and ", root, "rope.scaling.factor; one is expected");
  const std::int64_t rotated =
      file.integer_or(root + "rope.dimension_count", config["head_dim"].get<std::int64_t>());
  if (divisors != nullptr) config["rope_scaling"] = rope_of_divisors(*holder, *divisors, base, rotated / 2);
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
}

void refuse_more_than(const GgufFile& file, const std::string& name, std::int64_t most) {
  const std::int64_t value = file.integer_or(name, most);
  if (value > most) fail(file.subject(), "has ", name, " ", value, "; at most ", most, " is expected");
}

}  // namespace

Json gguf_config(std::span<const GgufFile> parts) {
  const GgufFile& file = parts.front();
  const GgufArchitecture& architecture = architecture_of(file);
  const std::string root = std::string(architecture.name) + ".";
  for (const auto& [name, value] : file.metadata())
    if (name.starts_with(root) && !is_known(architecture, std::string_view(name).substr(root.size())))
      fail(file.subject(), "has ", io::detail::printable(name), ", which heed does not know");
  if (!architecture.experts) refuse_more_than(file, root + "expert_count", 0);
  Json config = {{"model_type", architecture.model_type}, {"head_dim", nullptr}};
  for (const NameOfValue& name : kSizes)
    config[std::string(name.config)] = file.at(root + std::string(name.gguf)).integer();
  const auto heads = config["num_attention_heads"].get<std::int64_t>();
  config["head_dim"] =
      file.integer_or(root + "attention.key_length",
                      config["hidden_size"].get<std::int64_t>() / std::max<std::int64_t>(1, heads));
  config["num_key_value_heads"] = file.integer_or(root + "attention.head_count_kv", heads);
  if (const GgufValue* causal = file.find(root + "attention.causal")) config["is_causal"] = causal->flag();
  config[std::string(architecture.epsilon.safetensors)] =
      file.at(root + std::string(architecture.epsilon.gguf)).real();
  const GgufTensor* tokens = tensor_named(parts, "token_embd.weight").tensor;
  if (tokens == nullptr || tokens->sizes.size() != 2) fail(file.subject(), "has no matrix token_embd.weight");
  check_vocabulary(file, root, tokens->sizes[1]);
  config["vocab_size"] = tokens->sizes[1];
  config["tie_word_embeddings"] = !has_tensor(parts, "output.weight");
  if (has_tensor(parts, "blk.0.attn_q.bias") && architecture.name != "qwen2") config["attention_bias"] = true;
  if (const GgufValue* begin = file.find("tokenizer.ggml.bos_token_id"))
    config["bos_token_id"] = begin->integer();
  read_end_tokens(file, config);
  // Converters copy it from generation_config.json. A penalty on the last 0 tokens is none.
  if (const GgufValue* penalty = file.find("general.sampling.penalty_repeat"))
    if (file.real_or("general.sampling.penalty_last_n", 1) != 0)
      config["repetition_penalty"] = penalty->real();
  for (const std::string name : {"min_p", "xtc_probability", "mirostat"})
    if (file.find("general.sampling." + name)) config[name] = file.real_or("general.sampling." + name, 0);
  read_head_width(file, architecture, root, config);
  read_rope(parts, root, config);
  if (architecture.complete != nullptr) architecture.complete(parts, root, config);
  return config;
}

std::vector<std::string> unknown_in_gguf(const GgufFile& file) {
  const std::string root = std::string(file.at("general.architecture").text()) + ".";
  const std::array<std::string_view, 5> known = {root, "general.", "tokenizer.", "quantize.", "split."};
  std::vector<std::string> unknown;
  for (const auto& entry : file.metadata()) {
    const std::string_view name = entry.first;
    if (std::ranges::none_of(known, [name](auto part) { return name.starts_with(part); }))
      unknown.emplace_back(name);
  }
  return unknown;
}

}  // namespace heed::detail
