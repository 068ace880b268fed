// The vocabulary: the model's tokens, and added ones, which may be outside of the model's or among them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/models/token_model.hpp"
#include "text/normalizer.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// A token that is searched for in the text itself.
struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  std::string pattern;       ///< the text searched for: the content, normalised if `normalized`
  bool special = false;      ///< skipped by decoding that skips special tokens
  bool single_word = false;  ///< does not match within a word
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space after it
  bool normalized = false;   ///< searched for in the normalised text
};

class TokenVocabulary {
 public:
  /// `added` are the members of added_tokens; `normalizer` may be empty. Throws Error (io).
  TokenVocabulary(std::unique_ptr<const TokenModel> model, const std::vector<JsonPart>& added,
                  const Normalizer& normalizer);

  [[nodiscard]] const TokenModel& model() const { return *model_; }
  [[nodiscard]] const std::vector<AddedToken>& added() const { return added_; }
  [[nodiscard]] std::optional<std::string_view> token(std::int64_t id) const;
  [[nodiscard]] std::optional<std::int64_t> id(std::string_view token) const;
  [[nodiscard]] bool is_special(std::int64_t id) const;
  /// The text for decoders: the token, or an added token's pattern.
  [[nodiscard]] std::optional<std::string_view> decoded(std::int64_t id) const;
  /// Ids are in [0, size()).
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  void add(const JsonPart& part, const Normalizer& normalizer);
  [[nodiscard]] const AddedToken* added_of(std::int64_t id) const;

  std::unique_ptr<const TokenModel> model_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::int64_t, std::size_t> by_id_;       // indices into added_
  std::unordered_map<std::string, std::int64_t> by_content_;  // ids
  std::unordered_map<std::string, std::int64_t> by_pattern_;  // ids of normalised tokens
  std::int64_t next_ = 0;                                     // id of the next added token outside the model
  std::int64_t size_ = 0;
  std::vector<bool> special_;  // for each id up to the last special one
};

}  // namespace heed::detail
