#include "text/post_processor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "text/models/token_table.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

using nlohmann::json;

std::size_t after_letters(std::string_view text, std::size_t at, std::size_t count) {
  for (; count > 0 && at < text.size(); --count) do
      ++at;
    while (at < text.size() && continues_letter(text[at]));
  return at;
}

// Moves back from `at` by `count` letters; if the text has fewer before `at`, the position stays.
std::size_t before_letters(std::string_view text, std::size_t at, std::size_t count) {
  std::size_t place = at;
  for (; count > 0; --count) {
    if (place == 0) return at;
    place = begin_of_last(text.substr(0, place));
  }
  return place;
}

struct Spaces {
  std::size_t before = 0, after = 0;
};

// The spaces around a token, in letters; "Ġ" is GPT-2's space.
Spaces spaces_around(std::string_view token) {
  constexpr std::uint32_t kGpt2Space = 0x120;
  const auto is_space = [](std::string_view letter) {
    const std::uint32_t point = decode_utf8(letter).value;
    return point == kGpt2Space || is_white_space(point);
  };
  Spaces spaces;
  for (std::string_view rest = token; !rest.empty() && is_space(rest); ++spaces.before)
    rest.remove_prefix(decode_utf8(rest).length);
  for (std::string_view rest = token; !rest.empty(); ++spaces.after) {
    const std::size_t last = begin_of_last(rest);
    if (!is_space(rest.substr(last))) break;
    rest = rest.substr(0, last);
  }
  return spaces;
}

// Trims spaces off the spans, except one that the pre-tokenizer added before the text.
class Trim {
 public:
  explicit Trim(const JsonPart& part)
      : trims_(part.flag("trim_offsets", true)), prefixed_(part.flag("add_prefix_space", true)) {}

  void operator()(std::vector<TextToken>& tokens, std::string_view text, const TokenVocabulary& vocabulary,
                  bool /*add_special*/) const {
    if (!trims_) return;
    for (std::size_t n = 0; n < tokens.size(); ++n)
      trim(tokens[n], *vocabulary.token(tokens[n].id), n == 0, text);
  }

 private:
  void trim(TextToken& token, std::string_view content, bool is_first, std::string_view text) const {
    // Added tokens may include adjacent spaces.
    const std::string_view own = text.substr(token.begin, token.end - token.begin);
    Spaces spaces = spaces_around(own.find(content) != std::string_view::npos ? own : content);
    if ((is_first || token.begin == 0) && prefixed_ && spaces.before == 1) spaces.before = 0;
    token.begin = std::min(after_letters(text, token.begin, spaces.before), token.end);
    if (spaces.after > 0) token.end = std::max(before_letters(text, token.end, spaces.after), token.begin);
  }

  bool trims_, prefixed_;
};

using Ids = std::vector<std::int64_t>;

void add_tokens(const Ids& ids, const TokenVocabulary& vocabulary, std::vector<TextToken>& tokens) {
  for (const std::int64_t id : ids) {
    if (!vocabulary.token(id)) refuse("the tokenizer's post-processor adds ", id, ", which is not a token");
    tokens.push_back({id, 0, 0, vocabulary.is_special(id)});
  }
}

// Adds tokens before and after the text.
class Around {
 public:
  Around(Ids before, Ids after, std::optional<Trim> trim = std::nullopt)
      : before_(std::move(before)), after_(std::move(after)), trim_(trim) {}

  void operator()(std::vector<TextToken>& tokens, std::string_view text, const TokenVocabulary& vocabulary,
                  bool add_special) const {
    if (trim_) (*trim_)(tokens, text, vocabulary, add_special);
    if (!add_special) return;
    std::vector<TextToken> all;
    add_tokens(before_, vocabulary, all);
    all.insert(all.end(), tokens.begin(), tokens.end());
    add_tokens(after_, vocabulary, all);
    tokens = std::move(all);
  }

 private:
  Ids before_, after_;
  std::optional<Trim> trim_;
};

std::int64_t id_from(const JsonPart& part, const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMaxTokenIds))
    part.fail("with an id that is not a whole number from 0 to ", kMaxTokenIds - 1);
  return value.get<std::int64_t>();
}

// A pair such as ["[CLS]", 101].
Ids named_id(const JsonPart& part, const char* member) {
  const json& pair = part.at(member);
  if (!pair.is_array() || pair.size() != 2)
    part.fail("whose ", member, " is not a list of a token and its id");
  return {id_from(part, pair[1])};
}

PostProcessor around_from(const JsonPart& part) {
  std::optional<Trim> trim;
  if (part.type() == "RobertaProcessing") trim.emplace(part);
  return Around(named_id(part, "cls"), named_id(part, "sep"), trim);
}

// The ids of a special token named in a template.
Ids ids_named(const JsonPart& part, const json& piece) {
  const JsonPart tokens(part.at("special_tokens"), part.file(), "a list special_tokens");
  const std::string name = JsonPart(piece, part.file(), "a template's special token").text("id");
  if (!tokens.has(name.c_str())) part.fail("whose single form names a token that special_tokens lacks");
  const JsonPart token(tokens.at(name.c_str()), part.file(), "a template's special token");
  if (!token.at("ids").is_array()) token.fail("whose ids is not a list");
  Ids ids;
  for (const json& id : token.at("ids")) ids.push_back(id_from(part, id));
  return ids;
}

PostProcessor template_from(const JsonPart& part) {
  Ids around[2];
  std::size_t texts = 0;
  if (!part.at("single").is_array()) part.fail("whose single form is not a list");
  for (const json& piece : part.at("single")) {
    const JsonPart one(piece, part.file(), "a piece of a template");
    if (one.has("SpecialToken")) {
      const Ids ids = ids_named(part, one.at("SpecialToken"));
      Ids& side = around[std::min<std::size_t>(texts, 1)];
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      const JsonPart text(one.at("Sequence"), part.file(), "a piece of a template");
      if (text.text("id") != "A") part.fail("whose single form has a text other than A");
      ++texts;
    }
  }
  if (texts != 1) part.fail("whose single form has the text ", texts, " times; 1 is expected");
  return Around(std::move(around[0]), std::move(around[1]));
}

PostProcessor processor_sequence(const JsonPart& part) {
  std::vector<PostProcessor> all;
  for (const JsonPart& one : part.parts("processors")) all.push_back(post_processor_from(one));
  return [all](std::vector<TextToken>& tokens, std::string_view text, const TokenVocabulary& vocabulary,
               bool add_special) {
    for (const PostProcessor& one : all) one(tokens, text, vocabulary, add_special);
  };
}

}  // namespace

PostProcessor post_processor_from(const JsonPart& part) {
  if (part.type() == "BertProcessing" || part.type() == "RobertaProcessing") return around_from(part);
  if (part.type() == "TemplateProcessing") return template_from(part);
  if (part.type() == "ByteLevel") return Trim(part);
  if (part.type() == "Sequence") return processor_sequence(part);
  part.fail_type();
}

}  // namespace heed::detail
