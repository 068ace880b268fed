// Token ids or a chat that a model reads in place of a text, and whether it runs fast.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/model/cause.hpp"
#include "heed/model/model.hpp"
#include "output_files.hpp"

namespace heed::cli {

struct GivenTokens {
  std::string ids;    ///< --ids: whole numbers, or the name of a file with them
  std::string chat;   ///< --chat: a message, a JSON list of messages, or the name of a .json file with one
  bool fast = false;  ///< --fast: ModelOptions::fast
  [[nodiscard]] bool empty() const { return ids.empty() && chat.empty(); }
  /// The one that is given, as in a command.
  [[nodiscard]] std::string arguments() const;
};

/// Adds --ids, --chat and --fast. Their help begins with `condition`, and says that the first two take the
/// place of `place`.
void add_given_tokens(CLI::App& app, GivenTokens& tokens,
                      const std::string& condition = "with --model: ", const std::string& place = "WORDS");

/// Reads them. Throws Error (invalid_argument, io) for ids that the model does not have, for JSON that is no
/// list of messages, for more tokens than a fixed context holds, and as chat_text() does. Warns as
/// read_tokens_of() does. Without `fits`, a chat may be longer than the context.
[[nodiscard]] ModelTokens read_given_tokens(const heed::Model& model, const GivenTokens& tokens,
                                            bool fits = true);

/// A model and the text that it reads, of a command that takes nothing else.
struct ModelText {
  std::string model;
  std::vector<std::string> words;
  GivenTokens given;
};
/// Adds WORDS, --model, --ids, --chat and --fast.
void add_model_text(CLI::App& app, ModelText& text);
/// Throws UsageError unless a model and one text are given.
void check_model_text(const CLI::App& app, const ModelText& text);
[[nodiscard]] ModelTokens read_model_text(const heed::Model& model, const ModelText& text);

/// The random tokens of --protocol induction, repeated_random_tokens().
[[nodiscard]] ModelTokens draw_repeated_tokens(const heed::Model& model);

/// Throws UsageError if one is given without --model, beside the other, or beside `words`.
void check_given_tokens(const std::string& model, const GivenTokens& tokens, bool beside_words,
                        const char* words = "WORDS");

/// The tokens that the model predicts after a row (none: the last one), the likeliest first.
[[nodiscard]] std::vector<std::int64_t> predicted_tokens(const heed::Model& model, const ModelTokens& tokens,
                                                         const CauseOptions& options);
/// The first of them that is shown so, without a space before it; "#58" is token 58. Throws UsageError,
/// naming the option, if there is none.
[[nodiscard]] std::int64_t token_named(const heed::Model& model, const ModelTokens& tokens,
                                       const std::vector<std::int64_t>& predicted, const char* option,
                                       const std::string& name);

[[nodiscard]] std::vector<NamedFile> files_of(const GivenTokens& tokens);

}  // namespace heed::cli
