// Unigram (Kudo 2018): the segmentation of a word into tokens with the largest sum of scores. A letter
// without a token scores ten less than the lowest score; consecutive ones form one token.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/utf8.hpp"
#include "text/models/token_models.hpp"

namespace heed::detail {
namespace {

constexpr double kUnknownPenalty = 10;

struct ScoredTokens {
  explicit ScoredTokens(const JsonPart& part) {
    const nlohmann::json& list = part.at("vocab");
    if (!list.is_array()) part.fail("whose vocab is not a list");
    if (list.size() > kMaxTokenIds) part.fail("with more than 16777216 tokens");
    for (const nlohmann::json& one : list) {
      if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number())
        part.fail("whose vocab has an entry that is not a token and a score");
      ids.push_back(static_cast<std::int32_t>(tokens.size()));
      tokens.push_back(one[0].get<std::string>());
      scores.push_back(one[1].get<double>());
    }
  }
  std::vector<std::string> tokens;
  std::vector<std::int32_t> ids;
  std::vector<double> scores;
};

class Unigram final : public TableModel {
 public:
  Unigram(const JsonPart& part, ScoredTokens vocabulary)
      : TableModel(std::move(vocabulary.tokens), vocabulary.ids), scores_(std::move(vocabulary.scores)) {
    if (part.has("unk_id")) unknown_ = static_cast<std::int32_t>(part.integer("unk_id", 0, size() - 1));
    if (part.flag("byte_fallback", false)) bytes_ = byte_tokens(table_);
    double lowest = std::numeric_limits<double>::infinity();
    for (const double score : scores_) lowest = std::min(lowest, score);
    unknown_score_ = lowest - kUnknownPenalty;
  }

  void cut(std::string_view word, std::vector<TokenPiece>& pieces) const override {
    const std::vector<Step> best = best_steps(word);
    std::vector<TokenPiece> backward;
    for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
      const Step& step = best[end];
      const bool joined = step.id == unknown_ && !backward.empty() && backward.back().id == unknown_;
      if (joined)
        backward.back().begin = step.begin;
      else
        backward.push_back({step.id, step.begin, end});
    }
    for (auto piece = backward.rbegin(); piece != backward.rend(); ++piece) add(word, *piece, pieces);
  }

 private:
  // The best segmentation up to the end of a token.
  struct Step {
    double score = 0;
    std::size_t begin = kUnreached;
    std::int32_t id = -1;
  };
  static constexpr std::size_t kUnreached = std::numeric_limits<std::size_t>::max();

  std::vector<Step> best_steps(std::string_view word) const {
    std::vector<Step> best(word.size() + 1);
    for (std::size_t begin = 0; begin < word.size();) {
      const double here = best[begin].score;
      const std::size_t letter = decode_utf8(word.substr(begin)).length;
      const auto offer = [&](std::size_t length, std::int32_t id, double score) {
        Step& step = best[begin + length];
        if (step.begin != kUnreached && score <= step.score) return;
        if (id < 0) fail_unknown(word.substr(begin, length));
        step = {score, begin, id};
      };
      bool has_letter = false;
      table_.trie().each_prefix(word.substr(begin), [&](std::size_t length, std::int32_t id) {
        offer(length, id, scores_[static_cast<std::size_t>(id)] + here);
        has_letter = has_letter || length == letter;
      });
      if (!has_letter) offer(letter, unknown_, unknown_score_ + here);
      begin += letter;
    }
    return best;
  }

  // Consecutive unknown letters may be a token, or bytes with tokens.
  void add(std::string_view word, TokenPiece piece, std::vector<TokenPiece>& pieces) const {
    const std::string_view letters = word.substr(piece.begin, piece.end - piece.begin);
    if (piece.id == unknown_) {
      if (const auto known = table_.id(letters)) {
        piece.id = *known;
      } else if (has_bytes(letters)) {
        for (const char byte : letters)
          pieces.push_back({bytes_[static_cast<unsigned char>(byte)], piece.begin, piece.end});
        return;
      }
    }
    pieces.push_back(piece);
  }

  bool has_bytes(std::string_view letters) const {
    return !bytes_.empty() && std::all_of(letters.begin(), letters.end(), [&](char byte) {
      return bytes_[static_cast<unsigned char>(byte)] >= 0;
    });
  }

  std::vector<double> scores_;
  std::vector<std::int32_t> bytes_;  // empty without byte_fallback
  std::int32_t unknown_ = -1;
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<const TokenModel> unigram_from(const JsonPart& part) {
  return std::make_unique<Unigram>(part, ScoredTokens(part));
}

}  // namespace heed::detail
