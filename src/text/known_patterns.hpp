// Hand-written matchers for the regular expressions of widely used tokenizers, several times as fast as a
// regular expression.
#pragma once

#include <string_view>
#include <vector>

#include "text/regex.hpp"

namespace heed::detail {

using FindWords = std::vector<TextRange> (*)(std::string_view text);

/// The matcher for a regular expression; nullptr unless it is GPT-2's, Llama 3's or Qwen2's.
[[nodiscard]] FindWords known_pattern(std::string_view regex);

inline constexpr std::string_view kWordsOfGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Llama 3's pattern, with up to three digits a word, and Qwen2's, with one.
inline constexpr std::string_view kWordsOfLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kWordsOfQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace heed::detail
