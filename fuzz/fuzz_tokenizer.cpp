// TextTokenizer: whatever a tokenizer.json holds, it is refused in one sentence that names it, or texts are
// cut into tokens of the vocabulary whose places lie in the text, and these decoded and shown, or refused in
// one sentence.
//
// An input is the file up to its first byte 0, which JSON does not have; what follows is the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.hpp"
#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/text_tokenizer.hpp"

// Memory that cannot be had is an Error, not the sanitizer's end of the program.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

using heed::TextToken;
using heed::TextTokenizer;
using heed::fuzz::require;

bool is_between_letters(std::string_view text, std::size_t at) {
  return at == text.size() || (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0u) != 0x80u);
}

void use(const TextTokenizer& tokenizer, std::string_view text) {
  std::vector<std::int64_t> ids;
  for (const bool add_special : {false, true}) {
    const std::vector<TextToken> tokens = tokenizer.encode(text, add_special);
    require(tokens == tokenizer.encode(text, add_special));
    ids.clear();
    for (const TextToken& one : tokens) {
      require(one.begin <= one.end && is_between_letters(text, one.begin) &&
              is_between_letters(text, one.end));
      require(one.id >= 0 && one.id < tokenizer.size() && tokenizer.token(one.id));
      require(one.special == tokenizer.is_special(one.id));
      ids.push_back(one.id);
    }
  }
  require(heed::detail::is_utf8(tokenizer.decode(ids)));
  require(heed::detail::is_utf8(tokenizer.decode(ids, false)));
  const std::vector<std::string> shown = tokenizer.shown(ids);
  require(shown.size() == ids.size());
  for (const std::string& one : shown) require(heed::detail::is_utf8(one));
}

bool is_expected(const heed::Error& error) {
  const std::string_view message = error.what();
  if (error.code() == heed::ErrorCode::io) return message.starts_with("'tokenizer.json' ");
  if (error.code() == heed::ErrorCode::invalid_argument)
    return message.starts_with("text ") || message.starts_with("the tokenizer's ");
  return error.code() == heed::ErrorCode::out_of_memory;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  try {
    use(TextTokenizer::from_json(input.substr(0, end)), input.substr(std::min(end + 1, input.size())));
  } catch (const heed::Error& error) {
    if (!is_expected(error)) std::cerr << error.what() << std::endl;
    require(is_expected(error));
  }
  return 0;
}
