#include "train/gpt2.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;

// A parameter of heed as a part of GPT-2's tensor: `count` entries of the last axis, from `first` on. In
// GPT-2's Conv1D the weight is [in, out], so the parameter is stored transposed.
struct Gpt2Part {
  std::string name;
  Dims shape;  ///< shape of the whole tensor
  Tensor* value = nullptr;
  bool transposed = false;
  std::int64_t first = 0;

  [[nodiscard]] MutableTensorView own() const {
    return transposed ? value->mutable_view().transpose(0, 1) : value->mutable_view();
  }
};

std::string block_name(std::int64_t layer) {
  std::string name = "transformer.h.";
  name += std::to_string(layer);
  return name + ".";
}

class Gpt2Parts {
 public:
  explicit Gpt2Parts(nn::LanguageModel& model) {
    add("transformer.wte.weight", model.token_embedding.weight);
    add("transformer.wpe.weight", model.positions.weight);
    for (std::size_t n = 0; n < model.blocks.size(); ++n)
      add_block(block_name(static_cast<std::int64_t>(n)), model.blocks[n]);
    add_norm("transformer.ln_f", model.norm);
    add("lm_head.weight", model.unembedding.weight);
  }

  std::vector<Gpt2Part> parts;

 private:
  void add(const std::string& name, Tensor& value) { parts.push_back({name, value.shape(), &value}); }

  void add_norm(const std::string& name, nn::LayerNorm& norm) {
    add(name + ".weight", norm.weight);
    add(name + ".bias", norm.bias);
  }

  // Puts layers side by side: the columns are the outputs of all of them.
  void add_conv1d(const std::string& name, const std::vector<nn::Linear*>& layers) {
    std::int64_t all = 0, first = 0;
    for (const nn::Linear* layer : layers) all += layer->weight.size(0);
    for (nn::Linear* layer : layers) {
      parts.push_back({name + ".weight", {layer->weight.size(1), all}, &layer->weight, true, first});
      first += layer->weight.size(0);
    }
    first = 0;
    for (nn::Linear* layer : layers) {
      parts.push_back({name + ".bias", {all}, &*layer->bias, false, first});
      first += layer->weight.size(0);
    }
  }

  void add_block(const std::string& at, nn::TransformerBlock& block) {
    nn::MultiHeadAttention& layer = block.attention;
    add_norm(at + "ln_1", block.attention_norm);
    add_conv1d(at + "attn.c_attn", {&layer.query, &layer.key, &layer.value});
    add_conv1d(at + "attn.c_proj", {&*layer.out_proj});
    if (!block.mlp) return;
    add_norm(at + "ln_2", *block.mlp_norm);
    add_conv1d(at + "mlp.c_fc", {&block.mlp->up});
    add_conv1d(at + "mlp.c_proj", {&block.mlp->down});
  }
};

using Tensors = std::vector<std::pair<std::string, Tensor>>;

// The MLP written for a block without one.
void add_empty_mlp(std::int64_t layer, std::int64_t dim, Tensors& tensors) {
  const std::string at = block_name(layer);
  Tensor ones = Tensor::uninitialized({dim}, DType::f32);
  std::fill(ones.values<float>().begin(), ones.values<float>().end(), 1.0f);
  tensors.emplace_back(at + "ln_2.weight", std::move(ones));
  tensors.emplace_back(at + "ln_2.bias", Tensor({dim}));
  tensors.emplace_back(at + "mlp.c_fc.weight", Tensor({dim, 1}));
  tensors.emplace_back(at + "mlp.c_fc.bias", Tensor({1}));
  tensors.emplace_back(at + "mlp.c_proj.weight", Tensor({1, dim}));
  tensors.emplace_back(at + "mlp.c_proj.bias", Tensor({dim}));
}

class Gpt2File {
 public:
  explicit Gpt2File(const std::string& path) : path_(path), file_(path) {}

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    refuse(ErrorCode::io, path_, " ", what...);
  }

  [[nodiscard]] const Tensor& tensor(const std::string& name, const Dims& shape) {
    if (name != last_name_) {
      if (!file_.contains(name)) fail("has no tensor ", name, ", which the GPT-2 of its config.json needs");
      if (const Dims found = file_.shape(name); found != shape)
        fail("has a tensor ", name, " of shape ", to_string(found), "; ", shape, " is expected");
      if (!is_floating(file_.dtype(name))) fail("has a tensor ", name, " that is not of floating point");
      last_ = Tensor::copy_of(file_.read(name), DType::f32);
      last_name_ = name;
    }
    return last_;
  }

  void require_zero(const std::string& name, const Dims& shape) {
    const auto values = tensor(name, shape).values<float>();
    if (std::any_of(values.begin(), values.end(), [](float value) { return value != 0; }))
      fail("has a tensor ", name, " that is not 0, although the model is attention only");
  }

 private:
  std::string path_;
  io::SafetensorsReader file_;
  std::string last_name_;
  Tensor last_;
};

std::int64_t numbers_in(const io::SafetensorsReader& file) {
  std::int64_t numbers = 0;
  // The reader has checked that the shapes fill the file, so the sum cannot overflow.
  for (const std::string& name : file.names()) {
    try {
      numbers += element_count(file.shape(name));
    } catch (const Error&) {  // a type or rank that heed's tensors lack
      continue;
    }
  }
  return numbers;
}

}  // namespace

Json gpt2_config(const nn::LanguageModelConfig& config) {
  return {{"model_type", "gpt2"},
          {"vocab_size", config.vocabulary},
          {"n_positions", config.context},
          {"n_embd", config.model_dim},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_inner", config.attention_only ? 1 : 4 * config.model_dim},
          {"activation_function", "gelu"},
          {"layer_norm_epsilon", 1e-5},
          {"tie_word_embeddings", false}};
}

void write_gpt2_tensors(const std::string& path, nn::LanguageModel& model) {
  Tensors tensors;
  for (const Gpt2Part& part : Gpt2Parts(model).parts) {
    if (tensors.empty() || tensors.back().first != part.name)
      tensors.emplace_back(part.name, Tensor::uninitialized(part.shape, DType::f32));
    const MutableTensorView own = part.own();
    const int last = part.shape.size() - 1;
    copy(own, tensors.back().second.mutable_view().narrow(last, part.first, own.size(last)));
  }
  for (std::int64_t n = 0; model.config.attention_only && n < model.config.layers; ++n)
    add_empty_mlp(n, model.config.model_dim, tensors);
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor.view());
  io::write_safetensors(path, views, {{"format", "pt"}});
}

nn::LanguageModel read_gpt2_tensors(const std::string& path, const nn::LanguageModelConfig& config) {
  require_numbers(path, config);
  Generator generator;
  nn::LanguageModel model(config, generator);
  Gpt2File file(path);
  for (const Gpt2Part& part : Gpt2Parts(model).parts) {
    const MutableTensorView own = part.own();
    const int last = part.shape.size() - 1;
    copy(file.tensor(part.name, part.shape).view().narrow(last, part.first, own.size(last)), own);
  }
  for (std::int64_t n = 0; config.attention_only && n < config.layers; ++n) {
    file.require_zero(block_name(n) + "mlp.c_proj.weight", {1, config.model_dim});
    file.require_zero(block_name(n) + "mlp.c_proj.bias", {config.model_dim});
  }
  return model;
}

void require_numbers(const std::string& path, const nn::LanguageModelConfig& config) {
  const std::int64_t wanted = nn::parameter_count(config);
  if (const std::int64_t there = numbers_in(io::SafetensorsReader(path)); there < wanted)
    refuse(ErrorCode::io, path, " holds ", counted(there, "number"), "; a model of these sizes has ", wanted);
}

}  // namespace heed::detail
