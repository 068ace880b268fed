// The calls of all layers as one call.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "heed/model/look.hpp"
#include "model/look_support.hpp"

namespace heed {
namespace detail {

Tensor log_norms(const Tensor& norms) {
  constexpr float kLeastNorm = 1e-30f;
  Tensor bias({1, norms.size(0), 1, norms.size(1)}, DType::f32);
  const auto from = norms.values<float>();
  for (std::size_t i = 0; i < from.size(); ++i)
    bias.values<float>()[i] = std::log(std::max(from[i], kLeastNorm));
  return bias;
}

void weigh_by(const Tensor& bias, AttentionOptions& options) {
  if (options.bias)
    refuse("the model's attention has a bias of its own; a model without it is expected for weights by norm");
  options.bias = bias.view();
}

void check_layer(const std::optional<std::int64_t>& layer, const ModelInfo& info) {
  if (layer) check_range("layer", *layer, 0, info.layers - 1);
}

void check_head(const ModelHead& head, const ModelInfo& info) {
  if (head.layer < 0 || head.layer >= info.layers || head.head < 0 || head.head >= info.heads)
    refuse("head is ", head.layer, ".", head.head, "; layers 0 to ", info.layers - 1, " with heads 0 to ",
           info.heads - 1, " are expected");
}

}  // namespace detail

namespace {

class CallKeeper {
 public:
  CallKeeper(const Model& model, const ModelTokens& text, const TextCallOptions& wanted)
      : model_(model),
        text_(text),
        wanted_(wanted),
        layers_(wanted.layer ? 1 : model.info().layers),
        length_(std::ssize(text.ids)) {
    detail::check_layer(wanted.layer, model.info());
  }

  Document keep() {
    const ModelInfo& info = model_.info();
    ModelHooks hooks;
    hooks.attend = [this](const LayerCall& call) { return attend(call); };
    (void)model_.hidden_states(TensorView(text_.ids.data(), {length_}), hooks, wanted_.threads);
    Document document;
    document.query = query_.view().unsqueeze(0);
    document.key = key_.view().unsqueeze(0);
    document.value = value_.view().unsqueeze(0);
    document.options = options_.front();
    document.options.threads = wanted_.threads;
    tell_windows(document.options);
    if (norms_.count() > 0) {
      const Tensor& bias = document.tensors.emplace_back(detail::log_norms(norms_));
      detail::weigh_by(bias, document.options);
    }
    if (sinks_.count() > 0) document.options.sinks = sinks_.view();
    for (Tensor* tensor : {&query_, &key_, &value_, &sinks_}) document.tensors.push_back(std::move(*tensor));
    document.report.query_tokens = document.report.key_tokens = text_.shown;
    document.report.query_token_ids = document.report.key_token_ids = text_.ids;
    for (std::int64_t n = 0; n < layers_; ++n)
      document.report.layers.push_back({std::to_string(wanted_.layer.value_or(n)), info.heads});
    return document;
  }

 private:
  Tensor attend(const LayerCall& call) {
    if (call.layer == wanted_.layer.value_or(call.layer)) keep_layer(call);
    return attention(call.query, call.key, call.value, call.options).output;
  }

  void keep_layer(const LayerCall& call) {
    check(call);
    const ModelInfo& info = model_.info();
    const std::int64_t n = std::ssize(options_), head = n * info.heads, kv_head = n * info.kv_heads;
    if (n == 0) make_room(call.options);
    const auto part = [](Tensor& whole, std::int64_t begin, std::int64_t count) {
      return whole.mutable_view().narrow(0, begin, count);
    };
    copy(call.query, part(query_, head, info.heads));
    copy(call.key, part(key_, kv_head, info.kv_heads));
    copy(call.value, part(value_, kv_head, info.kv_heads));
    scale_queries(call.options);
    if (norms_.count() > 0)
      copy(model_.moved_norms(call.layer, call.value, wanted_.threads), part(norms_, head, info.heads));
    if (sinks_.count() > 0) copy(*call.options.sinks, part(sinks_, head, info.heads));
    options_.push_back(call.options);
    options_.back().sinks.reset();
  }

  void make_room(const AttentionOptions& options) {
    const ModelInfo& info = model_.info();
    const std::int64_t heads = layers_ * info.heads;
    query_ = Tensor::uninitialized({heads, length_, info.head_dim}, DType::f32);
    key_ = Tensor::uninitialized({layers_ * info.kv_heads, length_, info.head_dim}, DType::f32);
    value_ = Tensor::uninitialized(key_.shape(), DType::f32);
    if (wanted_.by == WeighedBy::norm) norms_ = Tensor({heads, length_}, DType::f32);
    if (options.sinks) sinks_ = Tensor({heads}, DType::f32);
  }

  // Checks the options that a single call can have only once.
  void check(const LayerCall& call) const {
    const AttentionOptions& now = call.options;
    if (now.mask || now.bias || now.alibi_slopes || now.decay || !now.score_mod.is_empty() ||
        !now.sparse_mask.is_empty())
      detail::refuse("layer ", call.layer, " has a mask or a bias of its own; heed cannot keep its calls");
    if (options_.empty()) return;
    const AttentionOptions& first = options_.front();
    if (now.softcap != first.softcap)
      detail::refuse("layer ", call.layer, " has softcap ", now.softcap, " and layer 0 ", first.softcap,
                     "; one softcap is expected when calls are kept");
    if (now.causal != first.causal || (sinks_.count() > 0) != now.sinks.has_value())
      detail::refuse("layer ", call.layer,
                     " attends by other rules than layer 0; the same rules are expected when calls are kept");
  }

  [[nodiscard]] double scale_of(const AttentionOptions& options) const {
    return options.scale.value_or(1 / std::sqrt(static_cast<double>(model_.info().head_dim)));
  }

  void scale_queries(const AttentionOptions& options) {
    if (options_.empty() || scale_of(options) == scale_of(options_.front())) return;
    const double factor = scale_of(options) / scale_of(options_.front());
    const std::int64_t count = model_.info().heads * length_ * model_.info().head_dim;
    float* query = query_.values<float>().data() + std::ssize(options_) * count;
    for (std::int64_t i = 0; i < count; ++i)
      query[i] = static_cast<float>(static_cast<double>(query[i]) * factor);
  }

  // Stores windows that differ between layers as runs of keys for each head.
  void tell_windows(AttentionOptions& options) const {
    const auto same = [&](const AttentionOptions& other) {
      return other.window.left == options.window.left && other.window.right == options.window.right;
    };
    if (std::ranges::all_of(options_, same)) return;
    const std::int64_t heads = model_.info().heads;
    Tensor runs({std::ssize(options_) * heads, length_, 1, 2}, DType::i64);
    std::int64_t* to = runs.values<std::int64_t>().data();
    for (const AttentionOptions& layer : options_)
      for (std::int64_t row = 0; row < heads * length_; ++row) {
        const std::int64_t i = row % length_;
        const Window& window = layer.window;
        *to++ = window.left < 0 ? 0 : std::max<std::int64_t>(0, i - window.left);
        *to++ = window.right < 0 ? length_ : std::min(length_, i + window.right + 1);
      }
    options.window = {};
    options.sparse_mask = SparseMask::row_intervals(runs, length_);
  }

  const Model& model_;
  const ModelTokens& text_;
  TextCallOptions wanted_;
  std::int64_t layers_;
  std::int64_t length_;
  Tensor query_, key_, value_, norms_, sinks_;
  std::vector<AttentionOptions> options_;
};

}  // namespace

Document document_of_text(const Model& model, const ModelTokens& text, const TextCallOptions& options) {
  detail::check_listed("by", options.by, WeighedBy::norm);
  return CallKeeper(model, text, options).keep();
}

}  // namespace heed
