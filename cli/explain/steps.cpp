#include "explain/steps.hpp"

#include <algorithm>
#include <utility>

namespace heed::cli {
namespace {

constexpr std::int64_t kTop = 3;

std::string shaped(const Tensor& tensor) { return to_string(tensor.shape()); }

// "[h]" after the name of a weight if there are several heads.
std::string of_head(const Model& model) { return model.heads() > 1 ? "[h]" : ""; }

// Builds an explanation. Each member function adds one stage.
class Walk {
 public:
  Walk(const Model& model, const Question& question) : model_(model) { result_.question = question; }

  Explanation run() {
    add_words();
    add_attention();
    return std::move(result_);
  }

 private:
  void add(const char* name, const char* title, std::string formula, std::string meaning,
           std::vector<std::string> axes, Tensor value) {
    result_.steps.push_back(
        {name, title, std::move(formula), std::move(meaning), std::move(axes), std::move(value)});
  }

  void add_words() {
    const Question& question = result_.question;
    const std::string words = std::to_string(model_.vocabulary.size()) + " distinct words";
    add("ids", "ids", "word → its number", "each of the " + words + " has a number", {kLq},
        model_.vocabulary.encode(question.tokens));
    if (question.cross)
      add("context_ids", "ids", "word → its number", "the words attended to, in the same vocabulary", {kLk},
          model_.vocabulary.encode(question.context_tokens));
    add("embeddings", "embeddings", "x_i = E[id_i]",
        "a row of the table E " + shaped(model_.embedding.weight) + " stands for each word", {kLq, "D"},
        model_.embedding.forward(result_.value("ids")));
    if (question.cross)
      add("context_embeddings", "embeddings", "y_j = E[id_j]", "the same for the words attended to",
          {kLk, "D"}, model_.embedding.forward(result_.value("context_ids")));
  }

  std::string projected(const std::string& to, const std::string& from, const nn::Linear& part) const {
    const std::string letter = to.substr(0, 1);
    return to + " = W_" + letter + of_head(model_) + " " + from + (part.bias ? " + b_" + letter : "");
  }

  void add_projections(nn::LayerResult& layer) {
    const std::string from = result_.question.cross ? "y_j" : "x_j";
    const nn::MultiHeadAttention& a = model_.attention;
    add("query", "queries", projected("q_i", "x_i", a.query), "what each word looks for", {"H", kLq, "d_k"},
        std::move(layer.query));
    add("key", "keys", projected("k_j", from, a.key), "what each word can be found by", {"Hkv", kLk, "d_k"},
        std::move(layer.key));
    add("value", "values", projected("v_j", from, a.value), "what each word hands over when attended to",
        {"Hkv", kLk, "d_v"}, std::move(layer.value));
  }

  // Computes each stage of the scores with the library's own attention(). A scale of 1 gives the plain dot
  // products. The reference kernel is used, so that the numbers match the formulas.
  void add_scores(const TensorView& query, const TensorView& key, const TensorView& value) {
    const bool causal = result_.question.causal;
    const auto scores = [&](std::optional<double> scale, ScoresStage stage) {
      return attention(query, key, value,
                       {.scale = scale,
                        .causal = causal,
                        .need = Need::scores,
                        .scores_stage = stage,
                        .kernel = Kernel::reference})
          .scores;
    };
    const std::vector<std::string> axes = {"H", kLq, kLk};
    add("scores", "scores", "s_ij = q_i · k_j", "how well each query (row) fits each key (column)", axes,
        scores(1.0, ScoresStage::raw));
    add("scaled", "scaled", "s_ij / √" + std::to_string(model_.key_dim()),
        "divided by √d_k, so that long vectors do not make large scores", axes,
        scores(std::nullopt, ScoresStage::raw));
    if (causal)
      add("masked", "masked", "-inf where j > i", "no word may attend to a later one", axes,
          scores(std::nullopt, ScoresStage::bias));
  }

  void add_attention() {
    const TensorView x = result_.value("embeddings");
    const TensorView y = result_.question.cross ? result_.value("context_embeddings") : x;
    const std::int64_t keys = y.shape()[0];
    nn::LayerResult layer = model_.attention.forward(x, y,
                                                     {.causal = result_.question.causal,
                                                      .need = Need::weights | Need::entropy,
                                                      .top_k = std::min(kTop, keys),
                                                      .kernel = Kernel::reference});
    add_projections(layer);
    add_scores(result_.value("query"), result_.value("key"), result_.value("value"));
    add("weights", "weights", "w_ij = exp(s_ij) / Σ_j exp(s_ij)",
        "softmax: the scores of a row become shares that sum to 1", {"H", kLq, kLk},
        std::move(layer.attention.weights));
    add("context", "context", "z_i = Σ_j w_ij v_j", "the values, mixed by the weights", {"H", kLq, "d_v"},
        std::move(layer.attention.output));
    add_merged(std::move(layer.output));
    result_.top_index = std::move(layer.attention.top_k_index);
    result_.top_weight = std::move(layer.attention.top_k_weight);
    result_.entropy = std::move(layer.attention.entropy);
  }

  void add_merged(Tensor output) {
    const bool one = model_.heads() == 1;
    add("merged", "merged", one ? "z_i" : "z_i of head 0, head 1, …",
        one ? "one head: its context as it is" : "the contexts of all heads side by side", {kLq, "H d_v"},
        nn::merge_heads(result_.value("context")));
    if (!model_.attention.out_proj) return;
    add("output", "output", std::string("o_i = W_o z_i") + (model_.attention.out_proj->bias ? " + b_o" : ""),
        "the output projection brings them back to the size of a word's vector", {kLq, "D"},
        std::move(output));
  }

  const std::string kLq = "Lq";
  const std::string kLk = "Lk";
  const Model& model_;
  Explanation result_;
};

}  // namespace

const Step* Explanation::find(const std::string& name) const {
  const auto found = std::ranges::find(steps, name, &Step::name);
  return found == steps.end() ? nullptr : &*found;
}

Explanation explain(const Model& model, const Question& question) { return Walk(model, question).run(); }

std::vector<Step> steps_of_word(const Explanation& explanation, std::int64_t query_word) {
  std::vector<Step> steps;
  for (const Step& step : explanation.steps) {
    Step one = step;
    const auto axis = std::ranges::find(step.axes, "Lq");
    if (axis != step.axes.end()) {
      one.value =
          Tensor::copy_of(step.value.view().select(static_cast<int>(axis - step.axes.begin()), query_word));
      one.axes.erase(one.axes.begin() + (axis - step.axes.begin()));
    }
    steps.push_back(std::move(one));
  }
  return steps;
}

}  // namespace heed::cli
