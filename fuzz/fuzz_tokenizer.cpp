// Reads arbitrary bytes as a tokenizer.json or as a folder of vocabulary files (Tokenizer). Either they
// are refused with a message that names them, or texts can be tokenised. Then all tokens are in the
// vocabulary, their offsets lie in the text, and decoding succeeds or is refused with a message.
//
// An input is the file up to its first byte 0, which JSON does not contain; the text follows. An input that
// begins with 1 or 2 is a folder, with vocabulary files or with a tokenizer.json. Each of its files is
// preceded by its length (two bytes); the text follows.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.hpp"
#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/model/tokenizer.hpp"
#include "model_folder.hpp"
#include "text/vocabulary_files.hpp"

namespace {

using heed::TextToken;
using heed::Tokenizer;
using heed::fuzz::Bytes;
using heed::fuzz::MemoryFolder;
using heed::fuzz::require;

bool is_between_letters(std::string_view text, std::size_t at) {
  return at == text.size() || (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0u) != 0x80u);
}

void use(const Tokenizer& tokenizer, std::string_view text) {
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

constexpr std::array<const char*, 7> kFiles = {"vocab.txt",
                                               "vocab.json",
                                               "merges.txt",
                                               "tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json"};

// Reads a folder with tokenizer.json as any tokenizer class, and one with vocab.txt as WordPiece. Files of no
// bytes do not exist.
void use_folder(const MemoryFolder& folder, std::string_view text) {
  const auto has = [&](const char* name) { return std::filesystem::exists(folder / name); };
  const auto found = heed::detail::tokenizer_in_folder(folder.path(),
                                                       has("tokenizer.json") ? "llama"
                                                       : has("vocab.txt")    ? "bert"
                                                                             : "gpt2",
                                                       "");
  require(found.tokenizer.has_value() == found.lack.empty());
  if (found.tokenizer) use(*found.tokenizer, text);
}

bool is_expected(const heed::Error& error, const std::string& folder) {
  const std::string_view message = error.what();
  if (error.code() == heed::ErrorCode::io)
    return message.starts_with("'tokenizer.json' ") || message.find(folder) != std::string_view::npos;
  if (error.code() == heed::ErrorCode::invalid_argument)
    return message.starts_with("text ") || message.starts_with("the tokenizer's ");
  return error.code() == heed::ErrorCode::out_of_memory;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MemoryFolder folder;
  Bytes input(data, size);
  const auto text = [&] {
    return std::string_view(reinterpret_cast<const char*>(input.data()), input.size());
  };
  try {
    if (!input.empty() && (input[0] == 1 || input[0] == 2)) {
      const bool has_json = input[0] == 2;
      input = input.subspan(1);
      for (const std::string name : kFiles) {
        folder.remove(name);
        const bool is_vocabulary = name.starts_with("vocab") || name == "merges.txt";
        if (has_json ? is_vocabulary : name == "tokenizer.json") continue;
        const Bytes file = heed::fuzz::next_part(input);
        if (!file.empty()) folder.put(name, file);
      }
      use_folder(folder, text());
    } else {
      const std::size_t end = std::min(text().find('\0'), size);
      use(Tokenizer::from_json(text().substr(0, end)), text().substr(std::min(end + 1, size)));
    }
  } catch (const heed::Error& error) {
    if (!is_expected(error, folder.path())) std::cerr << error.what() << std::endl;
    require(is_expected(error, folder.path()));
  }
  return 0;
}
