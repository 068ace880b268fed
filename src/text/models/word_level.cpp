// Whole words.
#include <utility>

#include "text/models/token_models.hpp"

namespace heed::detail {
namespace {

class WordLevel final : public TableModel {
 public:
  WordLevel(const JsonPart& part, TokenIds vocabulary)
      : TableModel(std::move(vocabulary.tokens), vocabulary.ids),
        unknown_(table_.id(part.text("unk_token", "<unk>"))) {}

  void cut(std::string_view word, std::vector<TokenPiece>& pieces) const override {
    auto found = table_.id(word);
    if (!found) found = unknown_;
    if (!found) fail_unknown(word);
    pieces.push_back({*found, 0, word.size()});
  }

 private:
  std::optional<std::int64_t> unknown_;
};

}  // namespace

std::unique_ptr<const TokenModel> word_level_from(const JsonPart& part) {
  return std::make_unique<WordLevel>(part, TokenIds(part));
}

}  // namespace heed::detail
