// A report of all heads, made while the model runs.
#include <cmath>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "core/tensor/concatenate.hpp"
#include "heed/model/look.hpp"
#include "model/look_support.hpp"

namespace heed {
namespace {

class TextLooker {
 public:
  TextLooker(const Model& model, const ModelTokens& text, const TextLookOptions& options)
      : model_(model), text_(text), options_(options), wanted_(options.report) {
    wanted_.query_tokens = wanted_.key_tokens = text.shown;
    wanted_.query_token_ids = wanted_.key_token_ids = text.ids;
    wanted_.rows.clear();
    wanted_.tiles.clear();
    wanted_.cost = false;
    wanted_.full_weights_cells = 0;
  }

  TextLook look() {
    detail::check_listed("by", options_.by, WeighedBy::norm);
    detail::check_layer(options_.layer, model_.info());
    const std::vector<std::int64_t>& ids = text_.ids;
    ModelHooks hooks;
    hooks.attend = [this](const LayerCall& call) { return attend(call); };
    (void)model_.hidden_states(TensorView(ids.data(), {std::ssize(ids)}), hooks, options_.threads);
    TextLook look;
    look.report = join_layers(std::move(layers_));
    look.retrieval = std::move(retrieval_);
    if (!norms_.empty()) look.norms = detail::concatenated(norms_, 0);
    if (!moved_.empty()) look.moved = detail::concatenated(moved_, 0);
    return look;
  }

 private:
  Tensor attend(const LayerCall& call) {
    if (call.layer != options_.layer.value_or(call.layer))
      return attention(call.query, call.key, call.value, call.options).output;
    Document document;
    document.query = call.query.unsqueeze(0);
    document.key = call.key.unsqueeze(0);
    document.value = call.value.unsqueeze(0);
    document.options = call.options;
    return options_.by == WeighedBy::norm ? attend_by_norm(call, document) : report_on(call, document);
  }

  // Returns the output of the model's own attention; the report is of the attention with log n_j added to its
  // scores.
  Tensor attend_by_norm(const LayerCall& call, Document& document) {
    AttentionOptions plain = call.options;
    plain.need = Need::lse;
    AttentionResult own = attention(document.query, document.key, document.value, plain);
    norms_.push_back(model_.moved_norms(call.layer, call.value, options_.threads));
    const Tensor bias = detail::log_norms(norms_.back());
    detail::weigh_by(bias, document.options);
    Tensor moved({own.lse.size(1), own.lse.size(2)}, DType::f32);
    lse_ = {};
    keeps_lse_ = true;
    (void)report_on(call, document);
    const auto with = lse_.values<float>(), without = own.lse.values<float>();
    for (std::size_t i = 0; i < with.size(); ++i) moved.values<float>()[i] = std::exp(with[i] - without[i]);
    moved_.push_back(std::move(moved));
    return std::move(own.output);
  }

  Tensor report_on(const LayerCall& call, Document& document) {
    wanted_.progress = progress_of(call.layer);
    document.report = make_report(document.query, document.key, document.value, document.options, wanted_);
    document.has_report = true;
    if (!options_.needle.empty()) {
      const std::vector<Retrieval> found = retrieval_of(document, options_.needle);
      retrieval_.insert(retrieval_.end(), found.begin(), found.end());
    }
    AttentionReport& report = document.report;
    Tensor output = std::exchange(report.output, {});
    if (keeps_lse_) lse_ = report.lse;
    if (!options_.keep_rows) forget_rows(report);
    layers_.emplace_back(std::to_string(call.layer), std::move(report));
    return output;
  }

  // The forward pass takes most of a layer's time.
  [[nodiscard]] std::function<void(std::string_view, double)> progress_of(std::int64_t layer) const {
    if (!options_.report.progress) return {};
    const auto layers = static_cast<double>(model_.info().layers);
    return [this, layer, layers](std::string_view what, double share) {
      const double within = what == "forward" ? share / 2 : 0.5;
      options_.report.progress("layers", (static_cast<double>(layer) + within) / layers);
    };
  }

  static void forget_rows(AttentionReport& report) {
    for (Tensor* tensor :
         {&report.lse, &report.max_score, &report.entropy, &report.distance, &report.max_weight,
          &report.first, &report.self, &report.previous, &report.next, &report.induction})
      *tensor = {};
  }

  const Model& model_;
  const ModelTokens& text_;
  const TextLookOptions& options_;
  ReportOptions wanted_;
  std::vector<std::pair<std::string, AttentionReport>> layers_;
  std::vector<Retrieval> retrieval_;
  std::vector<Tensor> norms_, moved_;
  Tensor lse_;  // of the current layer's report
  bool keeps_lse_ = false;
};

}  // namespace

TextLook look_at_text(const Model& model, const ModelTokens& text, const TextLookOptions& options) {
  return TextLooker(model, text, options).look();
}

}  // namespace heed
