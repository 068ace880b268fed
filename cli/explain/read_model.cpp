// A model from a safetensors file.
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.hpp"
#include "explain/model.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "io/json_text.hpp"
#include "options.hpp"

namespace heed::cli {
namespace {

struct Names {
  WeightLayout layout;
  const char* first;  ///< a tensor that only this layout has
  const char* out_proj;
};
constexpr std::array<Names, 3> kNames = {{{WeightLayout::per_head, "query.weight", "out_proj"},
                                          {WeightLayout::in_proj, "in_proj_weight", "out_proj"},
                                          {WeightLayout::fused_qkv, "qkv_layer.weight", "linear_layer"}}};

// The strings of a JSON list; none if anything else is in it.
std::vector<std::string> words_in(const std::string& text) {
  const auto list = detail::json_of(text, {.depth = 1});
  std::vector<std::string> words;
  if (!list || !list->is_array()) return {};
  for (const auto& word : *list) {
    if (!word.is_string()) return {};
    words.push_back(word.get<std::string>());
  }
  return words;
}

class ModelReader {
 public:
  ModelReader(const std::string& path, const ModelSizes& sizes) : path_(path), file_(path), sizes_(sizes) {}

  Model read(const Vocabulary& sentence, std::optional<WeightLayout> layout, std::uint64_t seed) const {
    const Names names = detect(layout);
    for (const char* added : {"bias_k", "bias_v"})  // from torch.nn.MultiheadAttention's add_bias_kv
      if (file_.contains(added)) fail("has a tensor ", added, ", which is not a parameter of the layer");
    nn::MultiHeadAttention attention = attention_with(names);
    for (const nn::Linear* part : {&attention.query, &attention.key, &attention.value})
      if (part->weight.count() == 0)
        fail("has a projection of shape ", part->weight.shape(), "; sizes of at least 1 are expected");
    if (attention.key.weight.size(1) != attention.query.weight.size(1))
      fail("its keys are made from ", attention.key.weight.size(1), " features and its queries from ",
           attention.query.weight.size(1),
           "; the same number is expected because both are made from embedded words");
    agree("--heads", sizes_.heads, attention.heads());
    agree("--key-dim", sizes_.key_dim, attention.query.weight.size(0) / attention.heads());
    agree("--value-dim", sizes_.value_dim, attention.value.weight.size(0) / attention.kv_heads());
    agree("--dim", sizes_.dim, attention.query.weight.size(1));
    Vocabulary vocabulary = vocabulary_or(sentence);
    nn::Embedding embedding = embedding_of(vocabulary, attention.query.weight.size(1), seed);
    return {std::move(vocabulary), std::move(embedding), std::move(attention), names.layout,
            "read from " + path_};
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... message) const {
    detail::refuse(ErrorCode::io, path_, ": ", message...);
  }

  // Rewords errors of the library about the file's tensors as errors of the file.
  nn::MultiHeadAttention attention_with(const Names& names) const {
    try {
      return attention_of(names);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      fail(error.what());
    }
  }

  void agree(const char* option, std::optional<std::int64_t> asked, std::int64_t found) const {
    if (asked && *asked != found) refuse_usage(option, " is ", *asked, ", but ", path_, " has ", found);
  }

  Names detect(std::optional<WeightLayout> wanted) const {
    for (const Names& names : kNames) {
      if (!file_.contains(names.first)) continue;
      if (wanted && *wanted != names.layout)
        refuse_usage("--layout is ", name_of(*wanted), ", but ", path_, " has ", names.first, ", which is ",
                     name_of(names.layout));
      return names;
    }
    fail("has neither query.weight nor in_proj_weight nor qkv_layer.weight; an attention layer is expected");
  }

  Tensor tensor(const std::string& name) const {
    if (!is_floating(file_.dtype(name)))
      fail("tensor ", name, " is ", name_of(file_.dtype(name)), "; a floating dtype is expected");
    return Tensor::copy_of(file_.read(name), DType::f32);
  }

  std::optional<Tensor> tensor_if(const std::string& name) const {
    if (!file_.contains(name)) return std::nullopt;
    return tensor(name);
  }

  // Returns the head count of a tensor whose shape does not give it: from --heads, or from the metadata that
  // `heed explain --save` wrote.
  std::int64_t heads_for(const std::string& name) const {
    if (sizes_.heads) return *sizes_.heads;
    const auto noted = file_.metadata().find("heads");
    if (noted != file_.metadata().end()) {
      const auto number = whole_number(noted->second);
      if (number && *number > 0) return *number;
    }
    refuse_usage("--heads is missing: ", path_, " does not say how many heads are in ", name);
  }

  std::optional<nn::Linear> out_proj_of(const Names& names) const {
    const std::string name = names.out_proj;
    if (!file_.contains(name + ".weight")) return std::nullopt;
    return nn::Linear(tensor(name + ".weight"), tensor_if(name + ".bias"));
  }

  // Returns [H, d, D]. A tensor [H d, D] is split into heads; biases likewise.
  Tensor per_head(const std::string& name, int rank) const {
    Tensor stacked = tensor(name);
    if (stacked.rank() == rank) return stacked;
    const std::int64_t heads = heads_for(name);
    if (stacked.rank() != rank - 1 || heads < 1 || stacked.size(0) % heads != 0)
      fail("tensor ", name, " has shape ", stacked.shape(), "; the rows of ", heads, " heads are expected");
    Dims shape{heads, stacked.size(0) / heads};
    if (rank == 3) shape.push_back(stacked.size(1));
    return std::move(stacked).reshaped(shape);
  }

  nn::MultiHeadAttention attention_of(const Names& names) const {
    std::optional<nn::Linear> out_proj = out_proj_of(names);
    if (names.layout == WeightLayout::per_head) return from_heads(std::move(out_proj));
    const bool in_proj = names.layout == WeightLayout::in_proj;
    const Tensor weight = tensor(names.first);
    const std::optional<Tensor> bias = tensor_if(in_proj ? "in_proj_bias" : "qkv_layer.bias");
    const std::optional<TensorView> bias_view = bias ? std::optional<TensorView>(*bias) : std::nullopt;
    const std::int64_t heads = heads_for(names.first);
    const auto make = in_proj ? nn::MultiHeadAttention::from_in_proj : nn::MultiHeadAttention::from_fused_qkv;
    return make(weight, bias_view, out_proj, heads, heads, value_dim_for(heads, out_proj));
  }

  // The value size of a head, derived from the columns of the output projection.
  std::int64_t value_dim_for(std::int64_t heads, const std::optional<nn::Linear>& out_proj) const {
    if (sizes_.value_dim) return *sizes_.value_dim;
    return out_proj && heads > 0 ? out_proj->weight.size(1) / heads : 0;
  }

  nn::MultiHeadAttention from_heads(std::optional<nn::Linear> out_proj) const {
    std::array<Tensor, 3> weights;
    std::array<std::optional<Tensor>, 3> biases;
    constexpr std::array<const char*, 3> kParts = {"query", "key", "value"};
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      const std::string part = kParts[i];
      if (!file_.contains(part + ".weight")) fail("has no tensor ", part, ".weight");
      weights[i] = per_head(part + ".weight", 3);
      if (file_.contains(part + ".bias")) biases[i] = per_head(part + ".bias", 2);
    }
    nn::HeadBiases views;
    if (biases[0]) views.query = biases[0]->view();
    if (biases[1]) views.key = biases[1]->view();
    if (biases[2]) views.value = biases[2]->view();
    return nn::MultiHeadAttention::from_heads(weights[0], weights[1], weights[2], views, std::move(out_proj));
  }

  Vocabulary vocabulary_or(const Vocabulary& sentence) const {
    const auto noted = file_.metadata().find("vocabulary");
    if (noted == file_.metadata().end()) return sentence;
    const std::vector<std::string> words = words_in(noted->second);
    Vocabulary vocabulary(words);
    if (words.empty() || vocabulary.words() != words)
      fail("its vocabulary is not a sorted list of distinct words");
    for (const std::string& word : sentence.words())
      if (!vocabulary.contains(word))
        refuse_usage("the word '", word, "' is not in the vocabulary of ", path_, ", which has ",
                     words.size(), " words");
    return vocabulary;
  }

  nn::Embedding embedding_of(const Vocabulary& vocabulary, std::int64_t dim, std::uint64_t seed) const {
    if (!file_.contains("embedding.weight")) {
      Generator generator(seed);
      return {vocabulary.size(), dim, generator};
    }
    Tensor table = tensor("embedding.weight");
    if (table.shape() != Dims{vocabulary.size(), dim})
      fail("tensor embedding.weight has shape ", table.shape(), "; ", to_string(Dims{vocabulary.size(), dim}),
           " is expected for ", vocabulary.size(), " distinct words and projections from ", dim);
    return nn::Embedding(std::move(table));
  }

  std::string path_;
  io::SafetensorsReader file_;
  ModelSizes sizes_;
};

}  // namespace

Model read_model(const std::string& path, const Vocabulary& sentence, const ModelSizes& sizes,
                 std::optional<WeightLayout> layout, std::uint64_t seed) {
  return ModelReader(path, sizes).read(sentence, layout, seed);
}

}  // namespace heed::cli
