#include "explain/model.hpp"

#include <array>
#include <cmath>

#include "command.hpp"
#include "core/tensor/concatenate.hpp"
#include "machine.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kHeads = 1;
constexpr std::int64_t kDim = 16;
constexpr std::int64_t kKeyDim = 24;
constexpr std::int64_t kValueDim = 28;

constexpr std::array kDistributions = {"U[0, 1)", "N(0, 1)", "U(-a, a) as PyTorch does", "N(0, 1/D)"};
static_assert(kDistributions.size() == 1 + static_cast<std::size_t>(Init::lecun));
constexpr std::array kLayouts = {"per-head", "in-proj", "fused-qkv"};
static_assert(kLayouts.size() == 1 + static_cast<std::size_t>(WeightLayout::fused_qkv));

// The weights exist twice while they are drawn. Doubles, because products of the sizes may overflow.
void check_sizes(const nn::MultiHeadOptions& sizes, std::int64_t words) {
  const double parts = 2.0 * (static_cast<double>(sizes.head_dim) + static_cast<double>(sizes.value_dim));
  const double rows = static_cast<double>(words) + static_cast<double>(sizes.heads) * parts;
  require_memory(detail::said("the layer of --heads ", sizes.heads, ", --dim ", sizes.dim, ", --key-dim ",
                              sizes.head_dim, " and --value-dim ", sizes.value_dim),
                 2 * sizeof(float) * rows * static_cast<double>(sizes.dim));
}

nn::MultiHeadAttention draw_attention(const nn::MultiHeadOptions& sizes, Init init, Generator& generator) {
  if (init == Init::torch) return {sizes, generator};
  const auto draw = [&](std::int64_t rows) {
    const Dims shape{sizes.heads, rows, sizes.dim};
    if (init == Init::uniform) return rand(generator, shape);
    Tensor weights = Tensor::uninitialized(shape, DType::f32);
    normal_(generator, weights, 0, init == Init::lecun ? 1 / std::sqrt(static_cast<double>(sizes.dim)) : 1);
    return weights;
  };
  const Tensor query = draw(sizes.head_dim);
  const Tensor key = draw(sizes.head_dim);
  const Tensor value = draw(sizes.value_dim);
  return nn::MultiHeadAttention::from_heads(
      query, key, value, {}, nn::Linear(sizes.heads * sizes.value_dim, sizes.dim, true, generator));
}

using Named = std::vector<std::pair<std::string, Tensor>>;

void add(Named& all, const std::string& name, Tensor weight, const std::string& bias_name,
         std::optional<Tensor> bias) {
  all.emplace_back(name, std::move(weight));
  if (bias) all.emplace_back(bias_name, std::move(*bias));
}

// Reshapes [rows, …] to [parts, rows / parts, …].
Tensor in_parts(const Tensor& x, std::int64_t parts) {
  Dims shape{parts, x.size(0) / parts};
  if (x.rank() == 2) shape.push_back(x.size(1));
  return Tensor(x).reshaped(shape);
}

// Merges axes 0 and 1.
Tensor joined(Tensor x) {
  Dims shape{x.size(0) * x.size(1)};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return std::move(x).reshaped(shape);
}

// The three projections as one tensor: one after another, or interleaved by head.
Tensor in_one(const std::array<Tensor, 3>& parts, const Model& model) {
  if (model.layout == WeightLayout::in_proj) return detail::concatenated(parts, 0);
  const std::int64_t groups = model.attention.kv_heads();
  return joined(detail::concatenated(
      std::array{in_parts(parts[0], groups), in_parts(parts[1], groups), in_parts(parts[2], groups)}, 1));
}

void add_in_one(Named& all, const Model& model) {
  const nn::MultiHeadAttention& a = model.attention;
  const bool in_proj = model.layout == WeightLayout::in_proj;
  std::optional<Tensor> bias;
  if (a.query.bias) bias = in_one({*a.query.bias, *a.key.bias, *a.value.bias}, model);
  add(all, in_proj ? "in_proj_weight" : "qkv_layer.weight",
      in_one({a.query.weight, a.key.weight, a.value.weight}, model),
      in_proj ? "in_proj_bias" : "qkv_layer.bias", std::move(bias));
}

void add_per_head(Named& all, const Model& model) {
  const nn::MultiHeadAttention& a = model.attention;
  const auto add_part = [&](const std::string& name, const nn::Linear& part, std::int64_t heads) {
    std::optional<Tensor> bias;
    if (part.bias) bias = in_parts(*part.bias, heads);
    add(all, name + ".weight", in_parts(part.weight, heads), name + ".bias", std::move(bias));
  };
  add_part("query", a.query, a.heads());
  add_part("key", a.key, a.kv_heads());
  add_part("value", a.value, a.kv_heads());
}

}  // namespace

const char* name_of(WeightLayout layout) { return kLayouts[static_cast<std::size_t>(layout)]; }

Model draw_model(const Vocabulary& vocabulary, const ModelSizes& sizes, Init init, std::uint64_t seed,
                 WeightLayout layout) {
  const nn::MultiHeadOptions options{.dim = sizes.dim.value_or(kDim),
                                     .heads = sizes.heads.value_or(kHeads),
                                     .head_dim = sizes.key_dim.value_or(kKeyDim),
                                     .value_dim = sizes.value_dim.value_or(kValueDim)};
  check_sizes(options, vocabulary.size());
  Generator generator(seed);
  nn::Embedding embedding(vocabulary.size(), options.dim, generator);
  if (init == Init::uniform) generator.manual_seed(seed);
  nn::MultiHeadAttention attention = draw_attention(options, init, generator);
  return {vocabulary, std::move(embedding), std::move(attention), layout,
          std::string("drawn from ") + kDistributions[static_cast<std::size_t>(init)] + ", seed " +
              std::to_string(seed) + ", untrained"};
}

Named parameters_of(const Model& model) {
  Named all;
  all.emplace_back("embedding.weight", model.embedding.weight);
  if (model.layout == WeightLayout::per_head)
    add_per_head(all, model);
  else
    add_in_one(all, model);
  if (const auto& out = model.attention.out_proj) {
    const std::string name = model.layout == WeightLayout::fused_qkv ? "linear_layer" : "out_proj";
    add(all, name + ".weight", out->weight, name + ".bias", out->bias);
  }
  return all;
}

}  // namespace heed::cli
