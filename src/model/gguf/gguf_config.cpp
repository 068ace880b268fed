#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>

#include "io/fault.hpp"
#include "model/gguf/gguf_model.hpp"
#include "model/weight_format.hpp"

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
constexpr std::array<NameOfValue, 7> kIntegers = {{{"block_count", "num_hidden_layers"},
                                                   {"context_length", "max_position_embeddings"},
                                                   {"embedding_length", "hidden_size"},
                                                   {"feed_forward_length", "intermediate_size"},
                                                   {"attention.head_count", "num_attention_heads"},
                                                   {"attention.head_count_kv", "num_key_value_heads"},
                                                   {"attention.key_length", "head_dim"}}};
// Read one by one below.
constexpr std::array<std::string_view, 7> kOthers = {"attention.layer_norm_rms_epsilon",
                                                     "rope.freq_base",
                                                     "rope.dimension_count",
                                                     "attention.value_length",
                                                     "rope.scaling.type",
                                                     "rope.scaling.factor",
                                                     "vocab_size"};

bool is_known(std::string_view name) {
  return std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end() ||
         std::any_of(kIntegers.begin(), kIntegers.end(),
                     [&](const NameOfValue& one) { return one.gguf == name; });
}

const GgufTensor* tensor_named(const GgufFile& file, std::string_view name) {
  const auto& all = file.tensors();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const GgufTensor& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// Files may say once more how many tokens there are.
void check_vocabulary(const GgufFile& file, const std::string& root, std::int64_t rows) {
  const GgufValue* given = file.find(root + "vocab_size");
  if (given == nullptr) return;
  const std::string said = "has " + root + "vocab_size " + std::to_string(given->integer()) + "; ";
  if (given->integer() != rows)
    fail(file.subject(), said + "token_embd.weight has " + std::to_string(rows) + " rows");
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && std::ssize(tokens->texts()) != given->integer())
    fail(file.subject(), said + "tokenizer.ggml.tokens has " + std::to_string(tokens->texts().size()));
}

// Where head_dim is given besides: "rope.dimension_count" counts the components that rotate, and values are
// as wide as keys.
void check_head_width(const GgufFile& file, const std::string& root, const Json& config) {
  if (!config.contains("num_attention_heads") || !config.contains("hidden_size")) return;
  const auto heads = std::max<std::int64_t>(1, config["num_attention_heads"].get<std::int64_t>());
  const std::int64_t width = config.contains("head_dim") ? config["head_dim"].get<std::int64_t>()
                                                         : config["hidden_size"].get<std::int64_t>() / heads;
  for (const char* name : {"rope.dimension_count", "attention.value_length"})
    if (const GgufValue* given = file.find(root + name); given != nullptr && given->integer() != width)
      fail(file.subject(), "has " + root + name + " " + std::to_string(given->integer()) + "; heads are " +
                               std::to_string(width) + " wide");
}

// What Llama 3 divides the frequency of a pair by (families' rope: low 1, high 4, context 8192).
double llama3_divisor(double frequency, double factor) {
  constexpr double kContext = 8192, kLow = 1, kHigh = 4;
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < kContext / kHigh) return 1;
  if (wavelength > kContext / kLow) return factor;
  const double smooth = (kContext / wavelength - kLow) / (kHigh - kLow);
  return 1 / ((1 - smooth) / factor + smooth);
}

// Such files have a divisor for each pair in place of Llama 3's rule. The rule is found again from the
// largest.
Json rope_of_divisors(const GgufFile& file, const GgufTensor& tensor, double base) {
  const std::string named = "has a tensor rope_freqs.weight ";
  const auto bytes = static_cast<std::uint64_t>(tensor.count) * sizeof(float);
  if (tensor.type != 0 || tensor.count > 4096 || bytes > file.size() - tensor.offset)
    fail(file.subject(), named + "that is not at most 4096 numbers of F32");
  std::vector<float> divisors(static_cast<std::size_t>(tensor.count));
  kStoredF32.read(file.data() + tensor.offset, tensor.count, divisors.data());
  const double factor = std::round(*std::max_element(divisors.begin(), divisors.end()) * 1024) / 1024;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(divisors.size());
    const double expected = llama3_divisor(std::pow(base, -exponent), factor);
    if (!(std::abs(static_cast<double>(divisors[i]) - expected) <= 1e-4 * expected))
      fail(file.subject(), named + "that is not of Llama 3's rule, the one that heed knows");
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

void read_rope(const GgufFile& file, const std::string& root, Json& config) {
  double base = 10000;
  if (const GgufValue* given = file.find(root + "rope.freq_base")) base = given->real();
  config["rope_theta"] = base;
  std::string type = "none";
  if (const GgufValue* given = file.find(root + "rope.scaling.type")) type = given->text();
  if (type != "none" && type != "linear")
    fail(file.subject(), "has " + root + "rope.scaling.type " + io::detail::printable(type) +
                             "; heed has none, linear and Llama 3's divisors");
  const GgufTensor* divisors = tensor_named(file, "rope_freqs.weight");
  if (divisors != nullptr && type == "linear")
    fail(file.subject(), "has both rope_freqs.weight and " + root + "rope.scaling.type; one is expected");
  if (divisors != nullptr) config["rope_scaling"] = rope_of_divisors(file, *divisors, base);
  if (type == "linear")
    config["rope_scaling"] = {{"rope_type", "linear"},
                              {"factor", file.at(root + "rope.scaling.factor").real()}};
}

}  // namespace

Json gguf_config(const GgufFile& file) {
  const std::string architecture(file.at("general.architecture").text());
  if (architecture != "llama" && architecture != "qwen2" && architecture != "qwen3")
    fail(file.subject(), "has general.architecture " + io::detail::printable(architecture) +
                             "; heed runs llama, qwen2, qwen3 from GGUF");
  const std::string root = architecture + ".";
  for (const auto& [name, value] : file.metadata())
    if (name.starts_with(root) && !is_known(std::string_view(name).substr(root.size())))
      fail(file.subject(), "has " + io::detail::printable(name) + ", which heed does not know");
  Json config = {{"model_type", architecture}};
  for (const NameOfValue& name : kIntegers)
    if (const GgufValue* value = file.find(root + std::string(name.gguf)))
      config[std::string(name.config)] = value->integer();
  config["rms_norm_eps"] = file.at(root + "attention.layer_norm_rms_epsilon").real();
  const GgufTensor* tokens = tensor_named(file, "token_embd.weight");
  if (tokens == nullptr || tokens->sizes.size() != 2) fail(file.subject(), "has no matrix token_embd.weight");
  check_vocabulary(file, root, tokens->sizes[1]);
  config["vocab_size"] = tokens->sizes[1];
  config["tie_word_embeddings"] = tensor_named(file, "output.weight") == nullptr;
  if (tensor_named(file, "blk.0.attn_q.bias") != nullptr && architecture != "qwen2")
    config["attention_bias"] = true;
  for (const char* token : {"bos_token_id", "eos_token_id"})
    if (const GgufValue* value = file.find("tokenizer.ggml." + std::string(token)))
      config[token] = value->integer();
  check_head_width(file, root, config);
  read_rope(file, root, config);
  return config;
}

}  // namespace heed::detail
