#include "given_tokens.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "heed/error.hpp"
#include "heed/model/chat.hpp"
#include "heed/model/look.hpp"
#include "io/json_file.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::string_view kSeparators = " ,\t\r\n[]";
constexpr heed::detail::JsonLimits kChatLimits = {.depth = 4, .members = 100'000, .values = 200'000};
constexpr std::size_t kShownBytes = 24;  // of text that is no id

template <class... Parts>
[[noreturn]] void refuse_given(const std::string& source, const Parts&... why) {
  detail::refuse(source, " ", why...);
}

std::int64_t id_in(std::string_view word, const std::string& source) {
  std::int64_t id = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (error != std::errc() || end != word.data() + word.size() || id < 0)
    refuse_given(source, "has '", printable(word.substr(0, kShownBytes)),
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
  if (ids.empty()) refuse_given(source, "has no ids; at least one is expected");
  return ids;
}

bool names_file(const GivenTokens& tokens) {
  return tokens.ids.find_first_not_of("0123456789 ,-[]") != std::string::npos;
}
bool chat_names_file(const std::string& chat) { return chat.ends_with(".json"); }

ModelTokens read_ids(const heed::Model& model, const GivenTokens& tokens) {
  const std::string& ids = tokens.ids;
  const bool in_file = names_file(tokens);
  std::error_code fault;
  if (in_file && !std::filesystem::exists(ids, fault) && fault != std::errc::permission_denied)
    refuse_usage("--ids is '", ids, "', and no file has this name; ids such as 5,9,5, or a file with them, ",
                 "are expected");
  const std::string source = in_file ? ids : "--ids";
  const std::vector<std::int64_t> numbers = ids_in(in_file ? file_text(ids) : ids, source);
  check_context(model, numbers.size(), source);
  try {
    return model.tokens_of(TensorView(numbers.data(), {std::ssize(numbers)}));
  } catch (const Error& error) {
    refuse_given(source + ":", error.what());
  }
}

ChatMessage message_of(const nlohmann::json& given, const std::string& source, std::size_t number) {
  ChatMessage message;
  if (!given.is_object()) refuse_given(source, "has a message that is no object of role and content");
  for (const auto& [name, value] : given.items()) {
    std::string* place = name == "role" ? &message.role : name == "content" ? &message.content : nullptr;
    if (value.is_null()) continue;
    if (place == nullptr)
      refuse_given(source, "has a message with '", printable(name), "'; role and content are expected");
    if (!value.is_string()) refuse_given(source, "has a message whose ", name, " is no text");
    *place = value.get<std::string>();
  }
  if (message.role.empty()) refuse_given(source, "has a message without a role");
  if (!given.contains("content") || given["content"].is_null())
    refuse_given(source, "has no content in message ", number, ", counted from 1; a text is expected");
  return message;
}

std::vector<ChatMessage> messages_of(const std::string& chat) {
  const bool in_file = chat_names_file(chat);
  const std::string source = in_file ? chat : "--chat", text = in_file ? file_text(chat) : typed_text(chat);
  if (!in_file && !text.starts_with('[')) return {{"user", text}};
  io::detail::check_json(text, source, kChatLimits);
  const nlohmann::json list = detail::parsed(text);
  if (!list.is_array()) refuse_given(source, "is no list of messages");
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& one : list) messages.push_back(message_of(one, source, messages.size() + 1));
  if (messages.empty()) refuse_given(source, "has no message; at least one is expected");
  return messages;
}

ModelTokens read_chat(const heed::Model& model, const std::string& chat) {
  const std::vector<ChatMessage> messages = messages_of(chat);
  try {
    return chat_tokens(model, messages);
  } catch (const Error& error) {
    detail::refuse(error.code(), chat_names_file(chat) ? chat : "--chat", ": ", error.what());
  }
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

std::string GivenTokens::arguments() const {
  return ids.empty() ? "--chat " + shell_quoted(chat) : "--ids " + shell_quoted(ids);
}

void add_given_tokens(CLI::App& app, GivenTokens& tokens, const std::string& condition,
                      const std::string& place) {
  add_text(app, "--ids", "IDS", tokens.ids,
           condition + "token ids to read in place of " + place + ", such as 5,9,5, or a file with them");
  add_text(app, "--chat", "MESSAGE", tokens.chat,
           condition + "a message to read in place of " + place +
               ", by the model's chat template; or a JSON list of messages, each with role and content; or "
               "a .json file with one; - reads standard input");
  add_flag(
      app, "--fast", tokens.fast,
      condition +
          "round numbers before products with weights, to 8 bits or bf16, where this processor gains from "
          "it");
}

void check_given_tokens(const std::string& model, const GivenTokens& tokens, bool beside_words,
                        const char* words) {
  if (tokens.fast && model.empty())
    refuse_usage("--fast is given without --model DIR, which would run with it");
  if (tokens.empty()) return;
  const std::string name = tokens.ids.empty() ? "--chat" : "--ids";
  if (model.empty()) refuse_usage(name, " is given without --model DIR, which would read it");
  const std::string other = beside_words                                  ? words
                            : !tokens.ids.empty() && !tokens.chat.empty() ? "--chat"
                                                                          : "";
  if (!other.empty()) refuse_usage(name, " and ", other, " are both given; one of the two is expected");
}

std::vector<NamedFile> files_of(const GivenTokens& tokens) {
  std::vector<NamedFile> files;
  if (names_file(tokens)) files.push_back({"--ids", tokens.ids});
  if (chat_names_file(tokens.chat)) files.push_back({"--chat", tokens.chat});
  return files;
}

ModelTokens read_given_tokens(const heed::Model& model, const GivenTokens& tokens, bool fits) {
  ModelTokens read = tokens.ids.empty() ? read_chat(model, tokens.chat) : read_ids(model, tokens);
  if (fits) check_context(model, read.ids.size(), "--chat");
  warn_of_length(model, read, tokens.ids.empty() ? "--chat" : "--ids");
  return with_shown(model, std::move(read));
}

void add_model_text(CLI::App& app, ModelText& text) {
  add_argument(app, "WORDS", text.words, "the text; - reads standard input");
  begin_group(app, "Model");
  add_model_option(app, text.model);
  add_given_tokens(app, text.given, "");
}

void check_model_text(const CLI::App& app, const ModelText& text) {
  require_option(app, "--model", "the model that reads the text");
  check_given_tokens(text.model, text.given, !text.words.empty());
  if (text.words.empty() && text.given.empty())
    refuse_usage("no text is given; WORDS are expected after --model DIR");
}

ModelTokens read_model_text(const heed::Model& model, const ModelText& text) {
  return text.given.empty() ? read_tokens_of(model, typed_text(joined_words(text.words)), "WORDS")
                            : read_given_tokens(model, text.given);
}

std::vector<std::int64_t> predicted_tokens(const heed::Model& model, const ModelTokens& tokens,
                                           const CauseOptions& options) {
  CauseOptions every = options;
  every.top = model.info().vocabulary;
  std::vector<std::int64_t> all;
  const TensorView ids(tokens.ids.data(), {static_cast<std::int64_t>(tokens.ids.size())});
  const Lens made = lens(model, ids, every);
  for (const TokenChance& chance : made.layers.back().top) all.push_back(chance.token);
  return all;
}

std::int64_t token_named(const heed::Model& model, const ModelTokens& tokens,
                         const std::vector<std::int64_t>& predicted, const char* option,
                         const std::string& name) {
  const std::string shown = name.substr(std::min(name.find_first_not_of(' '), name.size() - 1));
  for (const std::int64_t token : predicted)
    if (model.text_of(token, tokens) == shown) return token;
  const auto number = name[0] == '#' ? whole_number(name.substr(1)) : std::nullopt;
  if (number && *number >= 0 && *number < model.info().vocabulary) return *number;
  refuse_usage(option, " is '", name,
               "', which is not a token of the model; a token as heed look --lens shows it is expected");
}

ModelTokens draw_repeated_tokens(const heed::Model& model) {
  return with_shown(model, repeated_random_tokens(model));
}

}  // namespace heed::cli
