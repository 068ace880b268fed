// The token models, one per source file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/token_model.hpp"
#include "text/models/token_table.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// The common part of all models: a vocabulary.
class TableModel : public TokenModel {
 public:
  TableModel(std::vector<std::string> tokens, const std::vector<std::int32_t>& ids)
      : table_(std::move(tokens), ids) {}
  [[nodiscard]] std::optional<std::int64_t> id(std::string_view token) const final {
    return table_.id(token);
  }
  [[nodiscard]] std::optional<std::string_view> token(std::int64_t id) const final {
    return table_.token(id);
  }
  [[nodiscard]] std::int64_t size() const final { return table_.size(); }
  [[nodiscard]] std::int64_t count() const final { return std::ssize(table_.entries()); }

 protected:
  /// Throws Error (invalid_argument) for a word without a token, if the model has no unknown token.
  [[noreturn]] static void fail_unknown(std::string_view word);

  TokenTable table_;
};

/// The model's member "vocab": an object of tokens and ids.
struct TokenIds {
  explicit TokenIds(const JsonPart& part);
  std::vector<std::string> tokens;
  std::vector<std::int32_t> ids;
};

/// The ids of "<0x00>" to "<0xFF>" in the vocabulary, -1 for missing ones.
[[nodiscard]] std::vector<std::int32_t> byte_tokens(const TokenTable& table);

/// These throw Error (io).
[[nodiscard]] std::unique_ptr<const TokenModel> word_level_from(const JsonPart& part);
[[nodiscard]] std::unique_ptr<const TokenModel> word_piece_from(const JsonPart& part);
[[nodiscard]] std::unique_ptr<const TokenModel> bpe_from(const JsonPart& part);
[[nodiscard]] std::unique_ptr<const TokenModel> unigram_from(const JsonPart& part);

}  // namespace heed::detail
