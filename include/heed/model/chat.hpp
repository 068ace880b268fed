// Messages as a model was trained to read them: by the chat template in its own files.
#pragma once

#include <span>
#include <string>

#include "heed/export.hpp"
#include "heed/model/model.hpp"

namespace heed {

/// A message of a chat.
struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", or another that the template knows
  std::string content;
};

/// The text that the model's chat template makes of messages, at least one, as transformers'
/// apply_chat_template() does. With `add_generation_prompt` it ends where the model's answer begins. Throws
/// Error (invalid_argument) if the model has no template, if the template refuses the messages, and for a
/// template that heed cannot evaluate.
[[nodiscard]] HEED_API std::string chat_text(const Model& model, std::span<const ChatMessage> messages,
                                             bool add_generation_prompt = true);
/// The tokens of that text. Special tokens are recognised in it, and none is added.
[[nodiscard]] HEED_API ModelTokens chat_tokens(const Model& model, std::span<const ChatMessage> messages,
                                               bool add_generation_prompt = true);

}  // namespace heed
