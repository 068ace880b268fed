// Words of a text and heads of a model, as named on the command line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/model/model.hpp"

namespace heed::cli {

/// "1.3": layer 1, head 3. Throws UsageError, naming the option, for anything else.
[[nodiscard]] ModelHead head_named(const std::string& option, const std::string& text);
/// Throws UsageError, naming the option, if the model does not have the head.
void check_head(const std::string& option, const ModelHead& head, const ModelInfo& info);

/// The positions of `asked` among the tokens, counted from 0, ascending. "it" means every such token; "it:2"
/// its second occurrence; "#7" token 7, even if another token is spelled so. If nothing matches, case and the
/// marks that tokenizers put before words (a space, "Ġ", "▁") are ignored. A word in several tokens gives all
/// of them. Throws UsageError, naming `argument`, if there is no match. The text has `count` positions;
/// `tokens` has as many entries, or none. `hint` ends the refusal of an unknown word.
[[nodiscard]] std::vector<std::int64_t> word_places(const std::string& argument, const std::string& asked,
                                                    const std::vector<std::string>& tokens,
                                                    std::int64_t count, const std::string& hint = "");

/// The letters of a token in its word: "urs" of "·urs" or "##urs", "😀" of "😀 1/2", nothing of "😀 2/2".
[[nodiscard]] std::string_view without_continuation(std::string_view token);

/// "the (17)", or "17" if no tokens are known; printable.
[[nodiscard]] std::string word_with_place(const std::vector<std::string>& tokens, std::int64_t place);

/// "“to be or not to be”", cut to `columns` columns; empty without tokens. Pieces of words are joined, and
/// the tokens that a tokenizer puts around a text are left out.
[[nodiscard]] std::string text_of(const std::vector<std::string>& tokens, int columns);
/// The tokens as a text. Tokens of several characters are `words`: spaces stand between, except before
/// pieces.
[[nodiscard]] std::string joined_tokens(std::span<const std::string> tokens, bool words);
/// The text as typed, cut to `columns` columns, in quotation marks; empty for an empty text.
[[nodiscard]] std::string quoted_text(const std::string& text, int columns);

}  // namespace heed::cli
