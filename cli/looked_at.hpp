// The subject of `heed who` and `heed atlas`: a saved document, or a model that reads a text. Its texts and
// tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/inspect/document.hpp"
#include "heed/model/model.hpp"

namespace heed::cli {

void add_subject_arguments(CLI::App& app, std::string& document, std::vector<std::string>& words);

/// Opens a document with its report; for a file from `heed explain --save`, computes the report. For a folder
/// from heed.transformers.capture(weights=True, to=…), opens its first pass.
[[nodiscard]] Document open_looked_at(const std::string& path);

/// Refuses so many tokens if the model has a fixed context that does not hold them.
void check_context(const heed::Model& model, std::size_t tokens, const std::string& source);

/// Warns on standard error if the text is longer than the model's training texts.
void warn_of_length(const heed::Model& model, const ModelTokens& tokens, const std::string& source);

/// The tokens of a text, as in Model::tokenize(), with that warning.
[[nodiscard]] ModelTokens read_tokens_of(const heed::Model& model, const std::string& text,
                                         const std::string& source);

/// Runs the model on a text. Returns all layers with a report but no map.
[[nodiscard]] Document read_with_model(const heed::Model& model, const ModelTokens& tokens);

[[nodiscard]] std::string all_of_standard_input();
/// The text of WORDS, joined. A single "-" stands for standard input.
[[nodiscard]] std::string typed_text(const std::string& words);
/// The text of an option beside the text, likewise. Throws UsageError if both stand for standard input.
[[nodiscard]] std::string other_text(const std::string& option, const std::string& other,
                                     const std::string& text);
/// The path, or "standard input" for "-".
[[nodiscard]] std::string name_of_text(const std::string& path);
/// The contents of a text file, or of standard input for "-". Throws Error (io) if it cannot be read.
[[nodiscard]] std::string file_text(const std::string& path);

/// Reads a file with one token per line. Lines end in \n or \r\n; the last line end may be missing. Throws
/// Error (io) for a file that is unreadable or not UTF-8, UsageError unless it has `expected` lines. For the
/// message, `option` is the option that named the file, and `of` is the thing that each line names.
[[nodiscard]] std::vector<std::string> read_tokens(const std::string& option, const std::string& path,
                                                   std::int64_t expected, const char* of);

/// "3.1", or "1" if heads have no layer.
[[nodiscard]] std::string head_label(const AttentionReport& report, std::int64_t head);
/// The same with the batch entry if there are several: "batch 1, 3.1".
[[nodiscard]] std::string head_label(const AttentionReport& report, std::int64_t batch, std::int64_t head);

[[nodiscard]] const HeadSummary& summary_of(const AttentionReport& report, std::int64_t batch,
                                            std::int64_t head);

}  // namespace heed::cli
