// Renders arbitrary bytes as a chat template. Either it is refused with a line, or the text is UTF-8, and is
// the same each time.
//
// An input is the template up to its first byte 0; the message of the user follows.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/utf8.hpp"
#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "model/chat/render.hpp"

namespace {

using heed::detail::chat::dict_of;
using heed::detail::chat::list_of;
using heed::detail::chat::None;
using heed::fuzz::require;

std::string rendered(const std::string& source, const std::string& content) {
  return heed::detail::chat::rendered(
      source, {{"messages", list_of({dict_of({{"role", "system"}, {"content", "Be brief."}}),
                                     dict_of({{"role", "user"}, {"content", content}})})},
               {"tools", None{}},
               {"bos_token", "<s>"},
               {"add_generation_prompt", true}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string source(input.substr(0, end)), content(input.substr(std::min(end + 1, size)));
  if (!heed::detail::is_utf8(source) || !heed::detail::is_utf8(content)) return 0;
  try {
    const std::string text = rendered(source, content);
    require(heed::detail::is_utf8(text));
    if (source.find("strftime_now") == source.npos) require(text == rendered(source, content));
  } catch (const heed::Error& error) {
    require(error.code() == heed::ErrorCode::invalid_argument);
    require(std::string_view(error.what()).find(" (line ") != std::string_view::npos);
  }
  return 0;
}
