#include "heed/model/chat.hpp"

#include <utility>
#include <vector>

#include "core/message.hpp"
#include "core/utf8.hpp"
#include "model/chat/render.hpp"
#include "model/parts.hpp"

namespace heed {
namespace {

using detail::chat::Value;

Value value_of(std::span<const ChatMessage> messages) {
  std::vector<Value> all;
  for (const ChatMessage& message : messages) {
    if (!detail::is_utf8(message.role) || !detail::is_utf8(message.content))
      detail::refuse("message ", all.size(), " has bytes that are not UTF-8");
    all.push_back(detail::chat::dict_of({{"role", message.role}, {"content", message.content}}));
  }
  return detail::chat::list_of(std::move(all));
}

}  // namespace

std::string chat_text(const Model& model, std::span<const ChatMessage> messages, bool add_generation_prompt) {
  const detail::ChatSettings& chat = model.parts().chat;
  if (chat.text.empty())
    detail::refuse("the model ", chat.lack, ", by which it would read messages; a plain text is expected");
  if (messages.empty()) detail::refuse("messages has no message; at least one is expected");
  std::vector<std::pair<std::string, Value>> variables = {
      {"messages", value_of(messages)},
      {"tools", detail::chat::None{}},
      {"documents", detail::chat::None{}},
      {"add_generation_prompt", Value(add_generation_prompt)}};
  for (const auto& [name, content] : chat.tokens) variables.emplace_back(name, content);
  try {
    return detail::chat::rendered(chat.text, std::move(variables));
  } catch (const Error& error) {
    detail::refuse("the chat template in ", chat.source, " ", error.what());
  }
}

ModelTokens chat_tokens(const Model& model, std::span<const ChatMessage> messages,
                        bool add_generation_prompt) {
  return model.tokenize(chat_text(model, messages, add_generation_prompt), "the chat", false);
}

}  // namespace heed
