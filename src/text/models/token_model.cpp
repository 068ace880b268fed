#include "text/models/token_model.hpp"

#include <nlohmann/json.hpp>

#include "core/message.hpp"
#include "io/fault.hpp"
#include "text/models/token_models.hpp"

namespace heed::detail {

TokenIds::TokenIds(const JsonPart& part) {
  const nlohmann::json& vocabulary = part.at("vocab");
  if (!vocabulary.is_object()) part.fail("whose vocab is not a JSON object");
  for (const auto& [token, value] : vocabulary.items()) {
    const bool whole = value.is_number_unsigned();
    if (!whole || value.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMaxTokenIds))
      part.fail("whose vocab gives ", io::detail::printable(token), " no id from 0 to ", kMaxTokenIds - 1);
    tokens.push_back(token);
    ids.push_back(value.get<std::int32_t>());
  }
}

std::vector<std::int32_t> byte_tokens(const TokenTable& table) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::vector<std::int32_t> ids;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string token = "<0x";
    token += kDigits[byte / 16];
    token += kDigits[byte % 16];
    token += '>';
    ids.push_back(static_cast<std::int32_t>(table.id(token).value_or(-1)));
  }
  return ids;
}

void TableModel::fail_unknown(std::string_view word) {
  refuse("text has ", io::detail::printable(word),
         ", which is not a token, and the tokenizer has no unknown token");
}

// Only BPE has merges, only Unigram a list of tokens, and only WordPiece both of the others.
std::string type_of_model(const JsonPart& part) {
  if (part.has("type")) return part.type();
  if (part.has("merges")) return "BPE";
  if (part.at("vocab").is_array()) return "Unigram";
  const bool pieces = part.has("continuing_subword_prefix") && part.has("max_input_chars_per_word");
  return pieces ? "WordPiece" : "WordLevel";
}

std::unique_ptr<const TokenModel> token_model_from(const nlohmann::json& model, const std::string& name) {
  const JsonPart part(model, name, "a model");
  const std::string type = type_of_model(part);
  if (type == "BPE") return bpe_from(part);
  if (type == "WordPiece") return word_piece_from(part);
  if (type == "WordLevel") return word_level_from(part);
  if (type == "Unigram") return unigram_from(part);
  part.fail_type();
}

}  // namespace heed::detail
