// A model that writes on, token by token, and what its heads attended to meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"
#include "heed/kv_cache.hpp"
#include "heed/model.hpp"

namespace heed {

/// Tokens are drawn from softmax(logits / temperature), of which top_k is left first, then top_p.
struct GenerateOptions {
  std::int64_t tokens = 200;  ///< to write at most, 1 or more
  double temperature = 1;     ///< at least 0, which takes the largest logit
  std::int64_t top_k = 0;     ///< draws among the K likeliest only; 0: all
  double top_p = 1;           ///< among the fewest that have this share together (Holtzman et al. 2020)
  std::uint64_t seed = 1;     ///< of a Generator
  CacheFormat cache = CacheFormat::f32;  ///< what the keys and values of tokens that were read are kept as
  std::int64_t watch = 0;                ///< attended tokens to tell of with each that is written; 0: none
  std::optional<ModelHead> head{};       ///< whose; none: those of any head
  int threads = 0;                       ///< 0: what the machine has
};

/// That a head attended to a token while the next one was chosen.
struct WatchedPair {
  ModelHead head;
  std::int64_t place = 0;  ///< of the token, in the prompt and what was written, from 0
  std::string token;       ///< as people read it
  double weight = 0;
};

struct GeneratedToken {
  std::int64_t id = 0;
  /// What the text grows by: whole letters only. Of tokens that spell a letter together the last one has it.
  std::string text;
  double probability = 0;  ///< that the model gave it among all tokens, at temperature 1
  /// The heaviest first. Of one head: its heaviest tokens. Of any: each token once, with the head that
  /// attended to it most, without the first token of the text, at which heads look that have nothing to look
  /// for.
  std::vector<WatchedPair> watched;
};

using AddToken = std::function<void(const GeneratedToken& token)>;

/// Goes on from the prompt's tokens, up to a token that ends the model's texts (ModelInfo::end_tokens), which
/// is the last one given. Without any it begins with ModelInfo::begin_token. Of a model with a fixed context
/// it sees as many of the last tokens as that holds: until it is full, a token costs a step over a
/// ModelCache; from then on the whole context, whose positions move. Each token is given to `add` at once.
///
/// Throws Error: invalid_argument, for a wrong option, a model that is not causal or does not predict, a
/// cache format that does not fit the heads, and no token to begin with; internal where a logit is not a
/// number.
HEED_API std::vector<GeneratedToken> generate(const Model& model, const ModelTokens& prompt,
                                              const GenerateOptions& options = {}, const AddToken& add = {});
/// The same for a text, and the text behind it. Throws as Model::tokenize(), too; the message begins with
/// `source`.
HEED_API std::string generate(const Model& model, std::string_view prompt,
                              const GenerateOptions& options = {}, const AddToken& add = {},
                              const std::string& source = "the prompt");

/// The tokens of a text to go on from: none for an empty one, where the model has a token to begin with.
/// Throws as Model::tokenize(), and for a model of symbols without any word to repeat.
[[nodiscard]] HEED_API ModelTokens tokens_of_prompt(const Model& model, std::string_view prompt,
                                                    const std::string& source = "the prompt");

/// A token that may come next, and its probability.
struct Expectation {
  std::string token;  ///< as people read it
  double probability = 0;
};

/// The `count` likeliest tokens of a row of logits [vocabulary], the likeliest first. `beside` is the text.
[[nodiscard]] HEED_API std::vector<Expectation> expected(const Model& model, const TensorView& logits,
                                                         const ModelTokens& beside, std::int64_t count);

}  // namespace heed
