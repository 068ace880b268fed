// Byte-pair encoding (Sennrich et al. 2016) over bytes written as letters (GPT-2), or over letters
// (SentencePiece).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/utf8.hpp"
#include "heed/error.hpp"
#include "io/fault.hpp"
#include "text/models/token_model.hpp"
#include "text/models/token_models.hpp"

namespace heed::detail {
namespace {

using nlohmann::json;

constexpr std::uint32_t kQuickLetters = 512;  // covers the letters that GPT-2 uses for bytes

// The tokens `left` and `right` become `id`; lower ranks merge first.
struct BpeMerge {
  std::int32_t left = 0, right = 0;
  std::uint32_t rank = 0;
  std::int32_t id = 0;
};

// The pairs of tokens that BPE merges, and their order.
class BpeMerges {
 public:
  BpeMerges() = default;
  /// If a pair occurs several times, the last one counts. Tokens are in [0, tokens).
  BpeMerges(std::vector<BpeMerge> merges, std::size_t tokens) : first_(tokens + 1, 0) {
    std::sort(merges.begin(), merges.end(), [](const BpeMerge& a, const BpeMerge& b) {
      return std::tie(a.left, a.right, a.rank) < std::tie(b.left, b.right, b.rank);
    });
    for (const BpeMerge& one : merges) {
      const bool again =
          !merges_.empty() && merges_.back().left == one.left && merges_.back().right == one.right;
      if (again) merges_.pop_back();
      merges_.push_back(one);
    }
    for (const BpeMerge& one : merges_) ++first_[static_cast<std::size_t>(one.left) + 1];
    for (std::size_t token = 0; token < tokens; ++token) first_[token + 1] += first_[token];
  }

  /// Returns nullptr for pairs that do not merge.
  [[nodiscard]] const BpeMerge* find(std::int32_t left, std::int32_t right) const {
    std::size_t low = first_[static_cast<std::size_t>(left)];
    const std::size_t end = first_[static_cast<std::size_t>(left) + 1];
    std::size_t high = end;
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (merges_[middle].right < right)
        low = middle + 1;
      else
        high = middle;
    }
    return low < end && merges_[low].right == right ? &merges_[low] : nullptr;
  }

 private:
  std::vector<BpeMerge> merges_;      // by left, then by right
  std::vector<std::uint32_t> first_;  // where the merges of each left token begin
};

// Merging of one word. It merges the neighbouring pair of lowest rank, the leftmost among equals, until no
// pair can merge. A heap of pairs over a linked list of symbols takes n log n steps for a word of n letters.
class BpeWord {
 public:
  explicit BpeWord(std::size_t letters) {
    symbols_.reserve(letters);
    pairs_.reserve(letters);
  }

  /// Appends a symbol for the bytes [begin, end).
  void add(std::int32_t id, std::size_t begin, std::size_t end) {
    const auto place = static_cast<std::int32_t>(symbols_.size());
    symbols_.push_back(
        {id, place - 1, place + 1, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }

  void merge(const BpeMerges& merges) {
    for (std::size_t left = 0; left + 1 < symbols_.size(); ++left)
      offer(merges, static_cast<std::int32_t>(left), static_cast<std::int32_t>(left) + 1);
    while (!pairs_.empty()) {
      std::pop_heap(pairs_.begin(), pairs_.end(), is_later);
      const Pair pair = pairs_.back();
      pairs_.pop_back();
      join(merges, pair);
    }
  }

  void put(std::vector<TokenPiece>& pieces) const {
    for (const Symbol& one : symbols_)
      if (one.id >= 0) pieces.push_back({one.id, one.begin, one.end});
  }

 private:
  struct Symbol {
    std::int32_t id;  // -1: merged into the one before
    std::int32_t before, after;
    std::uint32_t begin, end;
  };
  struct Pair {
    std::uint32_t rank;
    std::int32_t left;  // its index
    std::int32_t id;    // the merged symbol
  };
  static bool is_later(const Pair& a, const Pair& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  Symbol& at(std::int32_t place) { return symbols_[static_cast<std::size_t>(place)]; }
  bool is_in(std::int32_t place) const {
    return place >= 0 && static_cast<std::size_t>(place) < symbols_.size();
  }

  void offer(const BpeMerges& merges, std::int32_t left, std::int32_t right) {
    const BpeMerge* const found = merges.find(at(left).id, at(right).id);
    if (found == nullptr) return;
    pairs_.push_back({found->rank, left, found->id});
    std::push_heap(pairs_.begin(), pairs_.end(), is_later);
  }

  // Does nothing if one of the two has been merged since.
  void join(const BpeMerges& merges, const Pair& pair) {
    Symbol& left = at(pair.left);
    if (left.id < 0 || !is_in(left.after)) return;
    Symbol& right = at(left.after);
    const BpeMerge* const found = merges.find(left.id, right.id);
    if (found == nullptr || found->id != pair.id) return;
    left.id = pair.id;
    left.end = right.end;
    left.after = right.after;
    right.id = -1;
    if (is_in(left.after)) at(left.after).before = pair.left;
    if (is_in(left.before)) offer(merges, left.before, pair.left);
    if (is_in(left.after)) offer(merges, pair.left, left.after);
  }

  // Words of usual length only need memory on the stack.
  std::array<std::byte, 4096> stack_;
  std::pmr::monotonic_buffer_resource memory_{stack_.data(), stack_.size()};
  std::pmr::vector<Symbol> symbols_{&memory_};
  std::pmr::vector<Pair> pairs_{&memory_};
};

struct BpeSettings {
  explicit BpeSettings(const JsonPart& part)
      : prefix(part.text("continuing_subword_prefix", "")),
        suffix(part.text("end_of_word_suffix", "")),
        fuse_unknown(part.flag("fuse_unk", false)),
        byte_fallback(part.flag("byte_fallback", false)),
        ignore_merges(part.flag("ignore_merges", false)) {
    if (byte_fallback && !(prefix + suffix).empty())
      part.fail("with byte_fallback and also continuing_subword_prefix or end_of_word_suffix");
    if (!part.has("dropout")) return;
    const json& dropout = part.at("dropout");
    if (!dropout.is_number() || dropout.get<double>() != 0)
      part.fail("with a dropout that is not 0: the same text would have other tokens each time");
  }
  std::string prefix, suffix;
  bool fuse_unknown, byte_fallback, ignore_merges;
};

// A merge is "left right", or a list of the two.
std::pair<std::string, std::string> merge_from(const JsonPart& part, const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (!merge.is_string()) part.fail("whose merges has an entry that is neither a string nor two strings");
  const auto text = merge.get<std::string>();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    part.fail("whose merges has ", io::detail::printable(text), ", which is not two tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

BpeMerges merges_from(const JsonPart& part, const TokenTable& table, std::size_t prefix) {
  const json& list = part.at("merges");
  if (!list.is_array()) part.fail("whose merges is not a list");
  const auto id_of = [&](const std::string& token) {
    const auto id = table.id(token);
    if (!id) part.fail("whose merges has ", io::detail::printable(token), ", which is not in its vocab");
    return static_cast<std::int32_t>(*id);
  };
  std::vector<BpeMerge> merges;
  merges.reserve(list.size());
  for (const json& one : list) {
    const auto pair = merge_from(part, one);
    if (pair.second.size() < prefix)
      part.fail("whose merges has ", io::detail::printable(pair.second),
                ", which lacks continuing_subword_prefix");
    merges.push_back({id_of(pair.first), id_of(pair.second), static_cast<std::uint32_t>(merges.size()),
                      id_of(pair.first + pair.second.substr(prefix))});
  }
  return {std::move(merges), static_cast<std::size_t>(table.size())};
}

class Bpe final : public TableModel {
 public:
  Bpe(const JsonPart& part, TokenIds vocabulary)
      : TableModel(std::move(vocabulary.tokens), vocabulary.ids),
        settings_(part),
        merges_(merges_from(part, table_, settings_.prefix.size())) {
    if (part.has("unk_token")) {
      drops_unknown_ = false;
      unknown_ = static_cast<std::int32_t>(table_.id(part.text("unk_token")).value_or(-1));
    }
    if (settings_.byte_fallback) bytes_ = byte_tokens(table_);
    if (!settings_.prefix.empty() || !settings_.suffix.empty()) return;
    find_spaces();
    quick_.assign(kQuickLetters, -1);
    for (const TokenTrie::Entry& one : table_.entries()) {
      if (one.bytes.empty()) continue;
      const CodePoint letter = decode_utf8(one.bytes);
      if (letter.length == one.bytes.size() && letter.value < kQuickLetters) quick_[letter.value] = one.id;
    }
  }

  [[nodiscard]] std::size_t separable(std::string_view word) const override {
    if (!separates_) return word.size();
    std::size_t at = word.find(kSpace, 1);
    while (at != std::string_view::npos && before_space_[static_cast<unsigned char>(word[at - 1])])
      at = word.find(kSpace, at + 1);
    return std::min(at, word.size());
  }

  void cut(std::string_view word, std::vector<TokenPiece>& pieces) const override {
    if (settings_.ignore_merges) {
      if (const auto whole = table_.id(word)) {
        pieces.push_back({*whole, 0, word.size()});
        return;
      }
    }
    if (word.size() > std::numeric_limits<std::int32_t>::max())
      throw Error(ErrorCode::invalid_argument, "text has a word of more than 2^31 - 1 bytes");
    BpeWord symbols(word.size());
    add_letters(word, symbols);
    symbols.merge(merges_);
    symbols.put(pieces);
  }

 private:
  // Finds the letters that tokens have before a ▁. After any other letter, nothing merges across the
  // beginning of a ▁. So SentencePiece's texts, one word each, are separable there.
  void find_spaces() {
    separates_ = !settings_.ignore_merges && table_.id(kSpace).has_value();
    for (const TokenTrie::Entry& one : table_.entries())
      for (std::size_t at = one.bytes.find(kSpace, 1); at != std::string_view::npos;
           at = one.bytes.find(kSpace, at + 1))
        before_space_[static_cast<unsigned char>(one.bytes[at - 1])] = true;
  }

  // Letters without a token become byte tokens if these exist. Otherwise they are unknown, and fused to one
  // token if the settings say so. Without an unknown token they give no token, as in tokenizers.
  void add_letters(std::string_view word, BpeWord& symbols) const {
    std::size_t unknown_begin = 0, unknown_end = 0;
    const auto add_unknown = [&] {
      if (unknown_begin < unknown_end) symbols.add(unknown_, unknown_begin, unknown_end);
      unknown_begin = unknown_end;
    };
    for (std::size_t begin = 0; begin < word.size();) {
      const CodePoint letter = decode_utf8(word.substr(begin));
      const std::size_t end = begin + letter.length;
      const std::int32_t id = id_of(word, begin, end, letter.value);
      if (id >= 0) {
        add_unknown();
        symbols.add(id, begin, end);
      } else if (has_bytes(word, begin, end)) {
        if (unknown_begin < unknown_end)
          refuse("text has ", io::detail::printable(word.substr(begin, letter.length)),
                 " behind a letter without a token, and only one of the two has tokens for its bytes, which "
                 "tokenizers puts into another order");
        for (std::size_t byte = begin; byte < end; ++byte)
          symbols.add(bytes_[static_cast<unsigned char>(word[byte])], byte, byte + 1);
      } else if (!drops_unknown_) {
        if (unknown_ < 0) fail_unknown(word.substr(begin, letter.length));
        if (!settings_.fuse_unknown) add_unknown();
        if (unknown_begin == unknown_end) unknown_begin = begin;
        unknown_end = end;
      }
      begin = end;
    }
    add_unknown();
  }

  std::int32_t id_of(std::string_view word, std::size_t begin, std::size_t end, std::uint32_t letter) const {
    if (letter < quick_.size()) return quick_[letter];
    const std::string_view bytes = word.substr(begin, end - begin);
    if (!quick_.empty()) return static_cast<std::int32_t>(table_.id(bytes).value_or(-1));
    std::string token = begin > 0 ? settings_.prefix : "";
    token += bytes;
    if (end == word.size()) token += settings_.suffix;
    return static_cast<std::int32_t>(table_.id(token).value_or(-1));
  }

  bool has_bytes(std::string_view word, std::size_t begin, std::size_t end) const {
    const std::string_view bytes = word.substr(begin, end - begin);
    return !bytes_.empty() && std::all_of(bytes.begin(), bytes.end(), [&](char byte) {
      return bytes_[static_cast<unsigned char>(byte)] >= 0;
    });
  }

  static constexpr std::string_view kSpace = "▁";

  BpeSettings settings_;
  BpeMerges merges_;
  std::vector<std::int32_t> quick_;  // of single letters; empty if words have a prefix or suffix
  std::vector<std::int32_t> bytes_;  // empty without byte_fallback
  std::int32_t unknown_ = -1;
  bool drops_unknown_ = true;
  bool separates_ = false;
  std::array<bool, 256> before_space_ = {};  // last bytes of the letters that tokens have before a ▁
};

}  // namespace

std::unique_ptr<const TokenModel> bpe_from(const JsonPart& part) {
  return std::make_unique<Bpe>(part, TokenIds(part));
}

}  // namespace heed::detail
