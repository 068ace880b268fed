#include "text/chat_settings.hpp"

#include "core/utf8.hpp"
#include "io/fault.hpp"
#include "io/json_file.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::subject_of;
using nlohmann::json;

constexpr std::uintmax_t kMaxTemplateMiB = 1;

// The template named "default" of a list, or of an object.
void take_default(const json& named, ChatSettings& chat) {
  if (named.is_object() && named.value("default", json()).is_string())
    chat.text = named["default"].get<std::string>();
  for (const json& one : named)
    if (one.is_object() && one.value("name", json()) == "default" &&
        one.value("template", json()).is_string())
      chat.text = one["template"].get<std::string>();
  if (chat.text.empty()) chat.lack = "has several chat templates and none with the name default";
}

}  // namespace

ChatSettings chat_settings_in(const std::string& folder, const FolderSettings& config,
                              const SettingsTokens& tokens) {
  ChatSettings chat;
  chat.tokens = tokens.named();
  const std::string file = folder + "/chat_template.jinja";
  if (is_there(file)) {
    chat.source = subject_of(file);
    chat.text = io::detail::bytes_in(file, kMaxTemplateMiB);
    if (!is_utf8(chat.text)) fail(chat.source, "has bytes that are not UTF-8");
  } else if (config.part().has("chat_template")) {
    const json& given = config.part().at("chat_template");
    chat.source = config.part().file();
    if (given.is_string())
      chat.text = given.get<std::string>();
    else if (given.is_array() || given.is_object())
      take_default(given, chat);
    else
      config.part().fail("with a chat_template that is neither a text nor a list or object of texts");
  }
  return chat;
}

}  // namespace heed::detail
