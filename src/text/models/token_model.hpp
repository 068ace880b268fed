// Splitting a word into tokens: BPE, WordPiece, Unigram, or whole words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail {

/// A token for the bytes [begin, end) of a word.
struct TokenPiece {
  std::int64_t id = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Immutable; several threads may use one.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the pieces of a word, which is normalised UTF-8, in order.
  virtual void cut(std::string_view word, std::vector<TokenPiece>& pieces) const = 0;
  /// The length of a prefix, at least one byte, that can be cut separately: cutting the prefix and the rest
  /// gives the pieces of the whole word.
  [[nodiscard]] virtual std::size_t separable(std::string_view word) const { return word.size(); }
  [[nodiscard]] virtual std::optional<std::int64_t> id(std::string_view token) const = 0;
  [[nodiscard]] virtual std::optional<std::string_view> token(std::int64_t id) const = 0;
  /// Ids are in [0, size()).
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// The number of tokens: fewer than size() if ids are unused, more if tokens share an id.
  [[nodiscard]] virtual std::int64_t count() const = 0;
};

class JsonPart;

/// The type of a tokenizer.json's model. In old files it follows from the members.
[[nodiscard]] std::string type_of_model(const JsonPart& part);

/// Reads the member "model" of a tokenizer.json. Throws Error (io) that begins with `name`.
[[nodiscard]] std::unique_ptr<const TokenModel> token_model_from(const nlohmann::json& model,
                                                                 const std::string& name);

}  // namespace heed::detail
