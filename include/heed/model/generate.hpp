// Text generation, token by token, with the attention of the heads on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/attention/kv_cache.hpp"
#include "heed/export.hpp"
#include "heed/model/model.hpp"

namespace heed {

/// Sampling options. Tokens are drawn from softmax(logits / temperature), restricted first by top_k, then by
/// top_p. Before that, the repetition_penalty of generation_config.json (or of GGUF) lowers the logits of all
/// tokens of the prompt and the text, and its min_new_tokens or min_length forbid the EOS tokens for a while.
struct GenerateOptions {
  std::int64_t tokens = 200;  ///< most tokens to generate, 1 or more
  double temperature = 1;     ///< 0 or more; 0 takes the largest logit
  std::int64_t top_k = 0;     ///< draws only among the K likeliest tokens; 0: all
  double top_p = 1;  ///< draws among the fewest tokens with this total probability (Holtzman et al. 2020)
  std::uint64_t seed = 1;                ///< seed of the Generator
  CacheFormat cache = CacheFormat::f32;  ///< storage format of the KV cache
  std::int64_t watch = 0;                ///< attended tokens to report per generated token; 0: none
  std::optional<ModelHead> head{};       ///< the head to report; default: any head
  int threads = 0;                       ///< 0: all processors
};

/// A token that a head attended to when the next one was chosen.
struct WatchedPair {
  ModelHead head;
  std::int64_t place = 0;  ///< index of the token in prompt and generated text, from 0
  std::string token;       ///< readable form
  double weight = 0;
};

/// A token that a model generated.
struct GeneratedToken {
  std::int64_t id = 0;
  /// The text that this token adds: whole characters only. If several tokens spell a character, the last one
  /// has it.
  std::string text;
  double probability = 0;  ///< probability among all tokens, at temperature 1
  /// Attended tokens by falling weight. For one head: its top tokens. For any head: each token once, with the
  /// head that attends to it most. The first token of the text is then left out, because idle heads attend to
  /// it.
  std::vector<WatchedPair> watched;
};

/// Is called with each token as soon as it is generated.
using AddToken = std::function<void(const GeneratedToken& token)>;

/// Continues the prompt until an EOS token (ModelInfo::end_tokens), which is the last token returned. An
/// empty prompt starts with ModelInfo::begin_token. A model with a fixed context sees the last tokens that
/// fit. Until it is full, each token costs one step over a ModelCache; after that a run over the whole
/// context, because positions shift. Passes each token to `add` at once.
///
/// Throws Error. invalid_argument: an invalid option, a model that is not causal or does not predict, a cache
/// format that does not fit the heads, no token to start with, or a setting in generation_config.json that
/// heed does not have and that changes the text or, above temperature 0, its sampling. internal: a logit is
/// not finite.
HEED_API std::vector<GeneratedToken> generate(const Model& model, const ModelTokens& prompt,
                                              const GenerateOptions& options = {}, const AddToken& add = {});
/// The same for a text; returns the generated text. Also throws as Model::tokenize(); messages start with
/// `source`.
HEED_API std::string generate(const Model& model, std::string_view prompt,
                              const GenerateOptions& options = {}, const AddToken& add = {},
                              const std::string& source = "the prompt");

/// The tokens of a prompt. Empty for an empty prompt if the model has a token to start with. Throws as
/// Model::tokenize(), and for a model of symbols if the prompt has no word to repeat.
[[nodiscard]] HEED_API ModelTokens tokens_of_prompt(const Model& model, std::string_view prompt,
                                                    const std::string& source = "the prompt");

/// A possible next token and its probability.
struct Expectation {
  std::string token;  ///< readable form
  double probability = 0;
};

/// The `count` likeliest tokens of a row of logits [vocabulary], by falling probability. `beside` is the
/// text.
[[nodiscard]] HEED_API std::vector<Expectation> expected(const Model& model, const TensorView& logits,
                                                         const ModelTokens& beside, std::int64_t count);

}  // namespace heed
