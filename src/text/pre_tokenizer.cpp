#include "text/pre_tokenizer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/byte_level.hpp"
#include "text/known_patterns.hpp"
#include "text/pattern.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

// The treatment of a match: it is dropped, becomes a word of its own, joins the word before or after it, or
// forms one word with adjacent matches.
// In the order of split_behavior_from().
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Stretch {
  Word word;
  bool is_match = false;
};

// Splits a word into its matches and the stretches between them. Empty matches are kept, because they end the
// stretch before them.
void stretches_of(const Word& word, const std::vector<TextRange>& matches, bool invert,
                  std::vector<Stretch>& all) {
  all.clear();
  std::size_t at = word.begin;
  for (const TextRange& match : matches) {
    const Word found = {word.begin + match.begin, word.begin + match.end};
    if (at != found.begin) all.push_back({{at, found.begin}, invert});
    all.push_back({found, !invert});
    at = found.end;
  }
  if (at != word.end) all.push_back({{at, word.end}, invert});
}

void join(const std::vector<Stretch>& stretches, SplitBehavior behavior, std::vector<Word>& words) {
  bool last = false;  // whether the previous stretch is a match
  bool first = true;
  for (const Stretch& stretch : stretches) {
    const bool match = stretch.is_match;
    if (behavior == SplitBehavior::removed && match) continue;
    const bool joins = !first && ((behavior == SplitBehavior::contiguous && match == last) ||
                                  (behavior == SplitBehavior::merged_with_previous && match && !last) ||
                                  (behavior == SplitBehavior::merged_with_next && !match && last));
    if (joins)
      words.back().end = stretch.word.end;
    else
      words.push_back(stretch.word);
    last = match;
    first = false;
  }
}

// Reads the member "behavior" of a part, which is required if the fallback is empty. Throws Error (io).
SplitBehavior split_behavior_from(const JsonPart& part, std::string_view fallback) {
  return static_cast<SplitBehavior>(part.choice(
      "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}, fallback));
}

// With `invert`, the text between matches is treated as the match.
void split(const Pattern& pattern, SplitBehavior behavior, bool invert, Words& words) {
  std::vector<Word> cut;
  cut.reserve(words.text.size() / 4);
  std::vector<Stretch> stretches;
  const std::string_view text = words.text.text();
  for (const Word& word : words.words) {
    const auto matches = pattern(text.substr(word.begin, word.end - word.begin));
    stretches_of(word, matches, invert, stretches);
    join(stretches, behavior, cut);
  }
  std::erase_if(cut, [](const Word& word) { return word.begin == word.end; });
  words.words = std::move(cut);
}

// Splits words at the matches of a pattern.
PreTokenizer splitter(Pattern pattern, SplitBehavior behavior, bool invert = false) {
  return [pattern = std::move(pattern), behavior, invert](Words& words) {
    split(pattern, behavior, invert, words);
  };
}

PreTokenizer pre_tokenizer_sequence(std::vector<PreTokenizer> all) {
  return [all = std::move(all)](Words& words) {
    for (const PreTokenizer& one : all) one(words);
  };
}

// Rewrites each word: `change(words, word, text)` appends the new word to `text`.
template <typename Change>
void rewrite_words(Words& words, const Change& change) {
  AlignedText text = AlignedText::rewritten(words.text.size() + words.text.size() / 2);
  for (Word& word : words.words) {
    const std::size_t begin = text.size();
    change(word, text);
    word = {begin, text.size()};
  }
  words.text = std::move(text);
}

void add_prefix_space(Words& words) {
  const std::string_view bytes = words.text.text();
  const auto begins_with_space = [&](const Word& word) { return bytes[word.begin] == ' '; };
  if (std::all_of(words.words.begin(), words.words.end(), begins_with_space)) return;
  rewrite_words(words, [&](const Word& word, AlignedText& text) {
    if (!begins_with_space(word)) text.add(" ", words.text.span(word.begin, word.begin + 1));
    text.add(words.text, word.begin, word.end);
  });
}

PreTokenizer byte_level(const JsonPart& part) {
  const bool prefix = part.flag("add_prefix_space");
  Pattern pattern;  // empty: words stay whole
  if (part.flag("use_regex", true)) pattern = regex_pattern(std::string(kWordsOfGpt2), part);
  return [prefix, pattern](Words& words) {
    if (prefix) add_prefix_space(words);
    if (pattern) split(pattern, SplitBehavior::isolated, false, words);
    rewrite_words(words, [&](const Word& word, AlignedText& text) {
      add_letters(words.text, word.begin, word.end, text);
    });
  };
}

class Metaspace {
 public:
  explicit Metaspace(const JsonPart& part)
      : mark_(part.text("replacement")), split_(part.flag("split", true)) {
    if (mark_.empty() || decode_utf8(mark_).length != mark_.size())
      part.fail("whose replacement is not a single code point");
    const std::size_t scheme = part.choice("prepend_scheme", {"always", "first", "never"}, "always");
    const bool prefix = part.flag("add_prefix_space", true);
    if (!prefix && scheme != 2 && part.has("prepend_scheme"))
      part.fail("whose add_prefix_space is false, but prepend_scheme is ", part.text("prepend_scheme"));
    always_ = prefix && scheme == 0;
    first_ = prefix && scheme == 1;
    pattern_ = string_pattern(mark_);
  }
  void operator()(Words& words) const {
    rewrite_words(words, [&](const Word& word, AlignedText& text) { mark(words.text, word, text); });
    if (split_) split(pattern_, SplitBehavior::merged_with_next, false, words);
  }

 private:
  void mark(const AlignedText& from, const Word& word, AlignedText& text) const {
    const std::string_view bytes = from.text();
    const bool is_marked =
        bytes[word.begin] == ' ' || bytes.substr(word.begin, word.end - word.begin).starts_with(mark_);
    const Span first = from.span(word.begin, word.begin + 1);
    if (!is_marked && (always_ || (first_ && first.begin == 0))) text.add(mark_, first);
    std::size_t at = word.begin;
    for (std::size_t space = bytes.find(' ', at); space < word.end; space = bytes.find(' ', at)) {
      text.add(from, at, space);
      text.add(mark_, from.span(space, space + 1));
      at = space + 1;
    }
    text.add(from, at, word.end);
  }

  std::string mark_;  // replaces a space: ▁
  bool split_;
  bool always_ = false;  // added before every word that lacks it
  bool first_ = false;   // added only before the text's first word
  Pattern pattern_;
};

PreTokenizer fixed_length(const JsonPart& part) {
  return [length = part.integer("length", 1, 1 << 30, 5)](Words& words) {
    std::vector<Word> cut;
    for (const Word& word : words.words) {
      std::int64_t count = 0;
      for (std::size_t at = word.begin; at < word.end; ++count) {
        const std::size_t next = at + decode_utf8(std::string_view(words.text.text()).substr(at)).length;
        if (count % length == 0) cut.push_back({at, at});
        cut.back().end = next;
        at = next;
      }
    }
    words.words = std::move(cut);
  };
}

// Runs of letters and their marks, or runs of signs.
std::vector<TextRange> words_or_signs(std::string_view text) {
  enum class Kind { none, space, word, sign };
  std::vector<TextRange> all;
  Kind last = Kind::none;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text.substr(at));
    const Kind kind = is_word(point.value)          ? Kind::word
                      : is_white_space(point.value) ? Kind::space
                                                    : Kind::sign;
    if (kind != Kind::space && kind != last) all.push_back({at, at});
    at += point.length;
    if (kind != Kind::space) all.back().end = at;
    last = kind;
  }
  return all;
}

PreTokenizer delimiter(const JsonPart& part) {
  const std::string text = part.text("delimiter");
  if (text.empty() || decode_utf8(text).length != text.size())
    part.fail("whose delimiter is not a single code point");
  return splitter(string_pattern(text), SplitBehavior::removed);
}

}  // namespace

PreTokenizer pre_tokenizer_from(const JsonPart& part) {
  const std::string& type = part.type();
  if (type == "ByteLevel") return byte_level(part);
  if (type == "BertPreTokenizer")
    return pre_tokenizer_sequence({splitter(point_pattern(is_white_space), SplitBehavior::removed),
                                   splitter(point_pattern(is_punctuation), SplitBehavior::isolated)});
  if (type == "Metaspace") return Metaspace(part);
  if (type == "Whitespace") return splitter(words_or_signs, SplitBehavior::removed, true);
  if (type == "WhitespaceSplit") return splitter(point_pattern(is_white_space), SplitBehavior::removed);
  if (type == "Punctuation")
    return splitter(point_pattern(is_punctuation), split_behavior_from(part, "Isolated"));
  if (type == "Digits")
    return splitter(point_pattern(is_numeric),
                    part.flag("individual_digits") ? SplitBehavior::isolated : SplitBehavior::contiguous);
  if (type == "CharDelimiterSplit") return delimiter(part);
  if (type == "FixedLength") return fixed_length(part);
  if (type == "Split")
    return splitter(pattern_from(part), split_behavior_from(part, ""), part.flag("invert"));
  if (type == "Sequence") {
    std::vector<PreTokenizer> all;
    for (const JsonPart& one : part.parts("pretokenizers")) all.push_back(pre_tokenizer_from(one));
    return pre_tokenizer_sequence(std::move(all));
  }
  part.fail_type();
}

}  // namespace heed::detail
