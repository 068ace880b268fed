#include "text/split.hpp"

#include <algorithm>
#include <utility>

namespace heed::detail {
namespace {

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

}  // namespace

SplitBehavior split_behavior_from(const JsonPart& part, const std::string& fallback) {
  const std::string name = fallback.empty() ? part.text("behavior") : part.text("behavior", fallback);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  part.fail("whose behavior is not Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void split(const Pattern& pattern, SplitBehavior behavior, bool invert, Words& words) {
  std::vector<Word> cut;
  cut.reserve(words.text.size() / 4);
  std::vector<Stretch> stretches;
  const std::string_view text = words.text.text();
  for (const Word& word : words.words) {
    const auto matches = pattern.find(text.substr(word.begin, word.end - word.begin));
    stretches_of(word, matches, invert, stretches);
    join(stretches, behavior, cut);
  }
  std::erase_if(cut, [](const Word& word) { return word.begin == word.end; });
  words.words = std::move(cut);
}

}  // namespace heed::detail
