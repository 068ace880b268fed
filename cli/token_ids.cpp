#include "token_ids.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "heed/error.hpp"
#include "heed/model/look.hpp"
#include "looked_at.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::string_view kSeparators = " ,\t\r\n[]";
constexpr std::size_t kShownBytes = 24;  // of text that is no id

[[noreturn]] void refuse_ids(const std::string& source, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, source + " " + why);
}

std::int64_t id_in(std::string_view word, const std::string& source) {
  std::int64_t id = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (error != std::errc() || end != word.data() + word.size() || id < 0)
    refuse_ids(source, "has '" + printable(word.substr(0, kShownBytes)) +
                           "'; whole numbers of at least 0, separated by spaces or commas, are expected");
  return id;
}

std::vector<std::int64_t> ids_in(std::string_view text, const std::string& source) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = text.find_first_not_of(kSeparators); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    ids.push_back(id_in(text.substr(at, end - at), source));
    at = text.find_first_not_of(kSeparators, end);
  }
  if (ids.empty()) refuse_ids(source, "has no ids; at least one is expected");
  return ids;
}

// Names each id if the model has no text for one of them.
ModelTokens with_shown(const heed::Model& model, ModelTokens tokens) {
  if (!tokens.shown.empty()) return tokens;
  std::vector<std::string> shown;
  for (const std::int64_t id : tokens.ids) shown.push_back(model.text_of(id, tokens));
  tokens.shown = std::move(shown);
  return tokens;
}

}  // namespace

void add_ids_option(CLI::App& app, std::string& ids) {
  add_text(app, "--ids", "IDS", ids,
           "with --model: token ids to read in place of WORDS, such as 5,9,5, or a file with them");
}

void check_ids(const std::string& model, const std::string& ids, bool beside_words) {
  if (ids.empty()) return;
  if (model.empty()) throw UsageError("--ids is given without --model DIR, which would read them");
  if (beside_words) throw UsageError("--ids and WORDS are both given; one of the two is expected");
}

bool ids_are_in_file(const std::string& ids) {
  return ids.find_first_not_of("0123456789 ,-[]") != std::string::npos;
}

ModelTokens read_token_ids(const heed::Model& model, const std::string& ids) {
  const bool in_file = ids_are_in_file(ids);
  const std::string source = in_file ? ids : "--ids";
  const std::vector<std::int64_t> numbers = ids_in(in_file ? file_text(ids) : ids, source);
  ModelTokens tokens;
  try {
    tokens = model.tokens_of(TensorView(numbers.data(), {static_cast<std::int64_t>(numbers.size())}));
  } catch (const Error& error) {
    refuse_ids(source + ":", error.what());
  }
  warn_of_length(model, tokens, source);
  return with_shown(model, std::move(tokens));
}

ModelTokens draw_repeated_tokens(const heed::Model& model) {
  return with_shown(model, repeated_random_tokens(model));
}

}  // namespace heed::cli
