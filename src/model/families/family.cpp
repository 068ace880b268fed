#include "model/families/family.hpp"

#include <array>
#include <string>

#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::array<const FamilyEntry*, 27> kFamilies = {
    &kBert,       &kCamembert, &kDistilBert, &kElectra,  &kGemma,      &kGemma2,    &kGemma3,
    &kGpt2,       &kGptNeox,   &kGptOss,     &kGranite,  &kLlama,      &kMistral,   &kMixtral,
    &kModernBert, &kMpnet,     &kNomicBert,  &kOlmo2,    &kPhi3,       &kQwen2,     &kQwen3,
    &kQwen3Moe,   &kRoberta,   &kSmolLm3,    &kStableLm, &kStarcoder2, &kXlmRoberta};

}  // namespace

const FamilyEntry& family_of(const ModelConfig& config) {
  const std::string type = config.text("model_type");
  std::string known;
  for (const FamilyEntry* family : kFamilies) {
    if (family->model_type == type) {
      if (config.has("quantization_config") && !family->quantised)
        config.fail("has quantization_config; heed reads weights of f32, bf16 and f16");
      return *family;
    }
    known += (known.empty() ? "" : ", ") + std::string(family->model_type);
  }
  config.fail("has model_type '", type, "'; heed runs ", known,
              ". heed.transformers.look shows the heads of other models through transformers");
}

void read_sizes(const ModelConfig& config, ModelInfo& info, const SizeKeys& keys) {
  info.layers = config.integer(keys.layers, 1, kMaxLayers);
  info.heads = info.kv_heads = config.integer(keys.heads, 1, kMaxHeads);
  info.model_dim = config.integer(keys.width, 1, kMaxWidth);
  info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  require_multiple(config, keys.width, info.model_dim, keys.heads, info.heads);
  info.head_dim = info.model_dim / info.heads;
}

Activation activation_of(const ModelConfig& config, const char* name) {
  const std::string text = config.text(name);
  const auto known = activation_named(text);
  if (!known) config.fail("has ", name, " '", text, "', which heed does not know");
  return *known;
}

double epsilon_of(const ModelConfig& config, const char* name) {
  const double epsilon = config.real(name);
  if (!(epsilon >= 0 && epsilon <= 1)) config.fail("has ", name, " beyond 0 to 1");
  return epsilon;
}

bool is_causal(const ModelConfig& config) { return config.has("is_causal") && config.flag("is_causal"); }

void require_multiple(const ModelConfig& config, const char* name, std::int64_t size, const char* part_name,
                      std::int64_t part) {
  if (size % part != 0)
    config.fail("has ", name, " ", size, ", which is not a multiple of ", part_name, " ", part);
}

void require_number(const ModelConfig& config, const char* name, double expected) {
  if (config.has(name) && config.real(name) != expected)
    config.fail("has ", name, " ", config.json()[name].dump(), "; its other keys say ",
                nlohmann::json(expected).dump());
}

WeightMatrix unembedding_weight(const ModelConfig& config, Weights& weights, const std::string& name,
                                const WeightMatrix& tokens) {
  if (!weights.contains(name) && config.flag("tie_word_embeddings")) return tokens;
  return weights.matrix(name, tokens.rows, tokens.columns);
}

Tensor rows_of(const WeightMatrix& table, std::span<const std::int64_t> ids, int threads) {
  Tensor rows = Tensor::uninitialized({std::ssize(ids), table.columns}, DType::f32);
  float* to = rows.values<float>().data();
  parallel_for(std::ssize(ids), threads, [&](std::int64_t i, int /*worker*/) {
    read_weight_row(table, ids[static_cast<std::size_t>(i)], to + i * table.columns);
  });
  return rows;
}

MutableTensorView as_heads(Tensor& x, std::int64_t first, std::int64_t count, std::int64_t head_dim) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  return {x.values<float>().data() + first, {count, rows, head_dim}, {head_dim, columns, 1}};
}

}  // namespace heed::detail
