// Words of a text, as a command line asks for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heed::cli {

/// Where `asked` stands among the tokens, counted from 0, ascending: "it" wherever it is a token; "it:2" its
/// second occurrence; "#7" token 7. Where no token is that, spelling is taken less strictly: without the
/// marks that tokenizers put before words (a space, "Ġ", "▁") and without case. Throws UsageError, naming
/// `argument`, where it stands nowhere. There are `count` places, and as many tokens or none.
[[nodiscard]] std::vector<std::int64_t> word_places(const std::string& argument, const std::string& asked,
                                                    const std::vector<std::string>& tokens,
                                                    std::int64_t count);

/// "the (17)", or "17" where no tokens are known; printable.
[[nodiscard]] std::string word_with_place(const std::vector<std::string>& tokens, std::int64_t place);

/// "“to be or not to be”", cut to so many columns; empty without tokens. Between tokens of several
/// characters stands a space.
[[nodiscard]] std::string text_of(const std::vector<std::string>& tokens, int columns);

}  // namespace heed::cli
