// Generation of text by a model.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/largest.hpp"
#include "core/message.hpp"
#include "heed/model/generate.hpp"
#include "heed/model/tokenizer.hpp"
#include "model/look_support.hpp"
#include "model/parts.hpp"
#include "model/predictions.hpp"
#include "model/sample.hpp"
#include "model/watched.hpp"

namespace heed::detail {
namespace {

// Number of earlier tokens that are decoded with a new one: spaces and the like depend on the text before.
constexpr std::size_t kBefore = 6;
constexpr std::string_view kBroken = "\uFFFD";

// The text of tokens that arrive one by one, as whole letters as soon as they are complete.
class TextStream {
 public:
  /// Continues after these tokens. The tokenizer must outlive it.
  TextStream(const Tokenizer& tokenizer, const std::vector<std::int64_t>& before) : tokenizer_(tokenizer) {
    std::size_t first = before.size() - std::min(before.size(), kBefore);
    while (first > 0 && is_inside_letter(before[first])) --first;
    for (; first < before.size(); ++first) take(before[first]);
    tell(tokenizer_.decode(ids_));
    while (told_.ends_with(kBroken)) told_.resize(told_.size() - kBroken.size());
  }
  /// Returns the text that one more token adds: nothing while the last letter lacks bytes, unless `last`.
  [[nodiscard]] std::string add(std::int64_t id, bool last) {
    take(id);
    std::string all = tokenizer_.decode(ids_), more;
    if (!last && all.ends_with(kBroken)) return "";
    if (all.starts_with(told_)) {
      more = all.substr(told_.size());
    } else {  // a stray byte broke letters beside it that have been returned
      ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(told_ids_));
      ends_.clear();
      more = all = tokenizer_.decode(ids_);
    }
    tell(std::move(all));
    forget();
    return more;
  }

 private:
  // The model's vocabulary may be larger than the tokenizer's.
  void take(std::int64_t id) {
    if (tokenizer_.token(id)) ids_.push_back(id);
  }
  void tell(std::string text) {
    told_ids_ = ids_.size();
    if (!text.ends_with(kBroken)) ends_.push_back(told_ids_);
    told_ = std::move(text);
  }
  // Keeps a few tokens, which begin with a whole letter.
  void forget() {
    if (ids_.size() <= 2 * kBefore) return;
    const auto later =
        std::ranges::find_if(ends_, [&](std::size_t end) { return end + kBefore > ids_.size(); });
    if (later == ends_.begin()) return;
    const std::size_t old = *std::prev(later);
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(old));
    ends_.erase(ends_.begin(), later);
    for (std::size_t& end : ends_) end -= old;
    told_ = tokenizer_.decode(ids_);
    told_ids_ = ids_.size();
  }
  // Whether the token may be one of several that spell a letter, and not the first. A byte that stands for
  // itself, "<0xE2>", is decoded together with the bytes beside it.
  [[nodiscard]] bool is_inside_letter(std::int64_t id) const {
    const std::optional<std::string> token = tokenizer_.token(id);
    return token && ((token->size() == 6 && token->starts_with("<0x") && token->ends_with('>')) ||
                     tokenizer_.decode({&id, 1}).starts_with(kBroken));
  }

  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> ids_;  // a few tokens already returned, and the pending ones
  std::string told_;               // the text of the first told_ids_ tokens, which has been returned
  std::size_t told_ids_ = 0;
  std::vector<std::size_t> ends_;  // after so many of ids_ a letter ends
};

}  // namespace
}  // namespace heed::detail

namespace heed {
namespace {

using detail::refuse;

void check_generate_options(const Model& model, const GenerateOptions& options) {
  const ModelInfo& info = model.info();
  if (options.tokens < 1) refuse("tokens is ", options.tokens, "; 1 or more is expected");
  if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
    refuse("temperature is ", options.temperature, "; a finite number of at least 0 is expected");
  if (options.top_k < 0) refuse("top_k is ", options.top_k, "; 0 (all) or more is expected");
  if (!(options.top_p > 0 && options.top_p <= 1))
    refuse("top_p is ", options.top_p, "; a number above 0, at most 1, is expected");
  if (options.watch < 0) refuse("watch is ", options.watch, "; 0 (nothing) or more is expected");
  if (options.head) detail::check_head(*options.head, info);
  if (!info.causal || !info.predicts)
    refuse("a model of family '", info.family, "' reads whole texts and cannot generate text");
  if (const std::string& lack = model.parts().no_generation; !lack.empty()) refuse(lack);
  if (const std::string& lack = model.parts().no_sampling; !lack.empty() && options.temperature > 0)
    refuse(lack);
}

// The keys that the last row of each head attended to most.
class Watched {
 public:
  explicit Watched(const GenerateOptions& options) : options_(options) {}

  [[nodiscard]] bool is_wanted() const { return options_.watch > 0; }
  void clear() { found_.clear(); }

  // Replaces attention().
  Tensor attend(const LayerCall& call) {
    AttentionOptions options = call.options;
    // One more, because the first token may be among them.
    options.top_k = std::min(options_.watch + 1, call.cache->length(0));
    AttentionResult result = attention(call.query.unsqueeze(0), *call.cache, options);
    detail::add_watched(call.layer, result, call.query.size(1) - 1, found_);
    return std::move(result.output);
  }

  [[nodiscard]] std::vector<WatchedPair> heaviest() const {
    return detail::heaviest(found_, options_.head, options_.watch);
  }

 private:
  const GenerateOptions& options_;
  std::vector<WatchedPair> found_;
};

class Writer {
 public:
  Writer(const Model& model, const ModelTokens& prompt, const GenerateOptions& options)
      : model_(model),
        prompt_(prompt),
        options_(options),
        ids_(prompt.ids),
        cache_(model.info(), options.cache),
        watched_(options),
        generator_(options.seed) {
    if (model.tokenizer() != nullptr)
      stream_ = std::make_unique<detail::TextStream>(*model.tokenizer(), ids_);
    if (watched_.is_wanted()) hooks_.attend = [this](const LayerCall& call) { return watched_.attend(call); };
  }

  [[nodiscard]] GeneratedToken next(bool last) {
    GeneratedToken token;
    if (ids_.empty()) {
      token.id = first();
      token.probability = 1;
    } else {
      Tensor logits = next_logits();
      const std::vector<double> chances = detail::probabilities_of(logits.values<float>());
      detail::penalise(logits.values<float>(), ids_, model_.parts().repetition_penalty);
      detail::check_logits(logits.values<float>());
      if (must_go_on()) detail::forbid(logits.values<float>(), model_.info().end_tokens);
      token.id = detail::sample(logits.values<float>(), options_, generator_);
      token.probability = chances[static_cast<std::size_t>(token.id)];
      token.watched = told();
    }
    token.text = text_of_next(token.id, last || ends(token.id));
    ids_.push_back(token.id);
    return token;
  }

  [[nodiscard]] bool ends(std::int64_t id) const {
    const std::vector<std::int64_t>& all = model_.info().end_tokens;
    return std::ranges::find(all, id) != all.end();
  }

 private:
  [[nodiscard]] std::int64_t first() const {
    if (!model_.info().begin_token)
      refuse("the prompt has no tokens; at least one is expected because the model has no BOS token");
    return *model_.info().begin_token;
  }

  // A first token that no prompt comes before counts as one, as in transformers.
  [[nodiscard]] bool must_go_on() const {
    const detail::ModelParts& parts = model_.parts();
    const auto length = std::ssize(ids_), begin = std::max<std::ptrdiff_t>(1, std::ssize(prompt_.ids));
    return parts.min_new_tokens ? length - begin < *parts.min_new_tokens : length < parts.min_length;
  }

  // `ids_` begins with the ids of the previous call, so only new tokens are read. Once they exceed the
  // context, it is read again: positions count from its first token, so every key changes.
  [[nodiscard]] Tensor next_logits() {
    const ModelInfo& info = model_.info();
    const auto length = static_cast<std::int64_t>(ids_.size());
    const std::int64_t begin = info.fixed_context ? std::max<std::int64_t>(0, length - info.context) : 0;
    const auto turning = model_.parts().family->turning_length();
    if (begin != begin_ || (turning && cache_.length() <= *turning && length > *turning)) cache_.clear();
    begin_ = begin;
    watched_.clear();
    const std::int64_t read = begin + cache_.length();
    const TensorView tokens(ids_.data() + read, {length - read});
    const Tensor hidden = model_.hidden_states(tokens, cache_, hooks_, options_.threads);
    return model_.logits(hidden.view().narrow(0, length - read - 1, 1), options_.threads)
        .reshaped({info.vocabulary});
  }

  [[nodiscard]] std::vector<WatchedPair> told() const {
    std::vector<WatchedPair> pairs = watched_.heaviest();
    for (WatchedPair& pair : pairs) {
      pair.place += begin_;
      pair.token = shown(pair.place);
    }
    return pairs;
  }

  [[nodiscard]] std::string shown(std::int64_t place) const {
    const auto at = static_cast<std::size_t>(place);
    if (at < prompt_.shown.size()) return prompt_.shown[at];
    return model_.text_of(ids_[at], prompt_);
  }

  [[nodiscard]] std::string text_of_next(std::int64_t id, bool last) {
    if (stream_) return stream_->add(id, last);
    const auto& own = model_.parts().own_tokenizer;
    if (!own) return "";
    const std::string token = own->text_of(id, prompt_.shown);
    return own->is_symbols() ? " " + token : token;
  }

  const Model& model_;
  const ModelTokens& prompt_;
  const GenerateOptions& options_;
  std::vector<std::int64_t> ids_;
  std::int64_t begin_ = 0;  // the token at position 0
  ModelCache cache_;
  Watched watched_;
  ModelHooks hooks_;
  Generator generator_;
  std::unique_ptr<detail::TextStream> stream_;
};

}  // namespace

ModelTokens tokens_of_prompt(const Model& model, std::string_view prompt, const std::string& source) {
  const auto& own = model.parts().own_tokenizer;
  if (own && own->is_symbols() && own->tokens_of(prompt, source).empty())
    refuse(source, " has no words; at least one is expected because this model continues repetitions");
  if (prompt.empty() && model.info().begin_token) return {};
  return model.tokenize(prompt, source);
}

std::vector<GeneratedToken> generate(const Model& model, const ModelTokens& prompt,
                                     const GenerateOptions& options, const AddToken& add) {
  check_generate_options(model, options);
  Writer writer(model, prompt, options);
  std::vector<GeneratedToken> all;
  for (std::int64_t left = options.tokens; left > 0; --left) {
    all.push_back(writer.next(left == 1));
    if (add) add(all.back());
    // The token that begins texts may also end them (GPT-2).
    const bool begins = prompt.ids.empty() && all.size() == 1;
    if (!begins && writer.ends(all.back().id)) break;
  }
  return all;
}

std::string generate(const Model& model, std::string_view prompt, const GenerateOptions& options,
                     const AddToken& add, const std::string& source) {
  check_generate_options(model, options);
  std::string text;
  for (const GeneratedToken& token : generate(model, tokens_of_prompt(model, prompt, source), options, add))
    text += token.text;
  return text;
}

std::vector<Expectation> expected(const Model& model, const TensorView& logits, const ModelTokens& beside,
                                  std::int64_t count) {
  if (logits.rank() != 1 || logits.dtype() != DType::f32 || logits.size(0) != model.info().vocabulary)
    refuse("logits is ", logits.dtype(), " ", logits.shape(), "; f32 [", model.info().vocabulary,
           "] is expected");
  if (count < 0) refuse("count is ", count, "; 0 or more is expected");
  const Tensor row = Tensor::copy_of(logits);
  const std::vector<double> chances = detail::probabilities_of(row.values<float>());
  std::vector<Expectation> all;
  for (const std::int64_t id : detail::largest_of(chances, count))
    all.push_back({model.text_of(id, beside), chances[static_cast<std::size_t>(id)]});
  return all;
}

}  // namespace heed
