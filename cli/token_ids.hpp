// Token ids in place of a text: --ids.
#pragma once

#include <string>

#include "heed/model/model.hpp"

namespace CLI {
class App;
}

namespace heed::cli {

/// Adds --ids.
void add_ids_option(CLI::App& app, std::string& ids);

/// The tokens of --ids: whole numbers, or the name of a file with them. Throws Error (invalid_argument, io)
/// for anything else, and for ids that the model does not have. Warns as read_tokens_of() does.
[[nodiscard]] ModelTokens read_token_ids(const heed::Model& model, const std::string& ids);

/// The random tokens of --protocol induction, repeated_random_tokens().
[[nodiscard]] ModelTokens draw_repeated_tokens(const heed::Model& model);

/// Throws UsageError if --ids is given without --model, or beside words.
void check_ids(const std::string& model, const std::string& ids, bool beside_words);

/// Whether --ids names a file.
[[nodiscard]] bool ids_are_in_file(const std::string& ids);

}  // namespace heed::cli
