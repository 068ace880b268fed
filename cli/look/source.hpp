// The input of `heed look`: the tensors of a call, a file, a folder of captured calls, or a model that reads
// a text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend_inputs.hpp"
#include "given_tokens.hpp"
#include "heed/inspect/document.hpp"
#include "heed/model/look.hpp"

namespace heed::cli {

struct LookSource {
  std::string document;              ///< a file, or a folder of captured calls; empty: query, key and value
  AttendArguments call;              ///< the inputs and options of the call
  std::string tokens, key_tokens;    ///< files with one token per line
  std::string model;                 ///< a model's folder
  std::vector<std::string> words;    ///< the words after DOC
  std::string text;                  ///< for a model: the text to read
  std::vector<std::string> texts;    ///< for a model: files with further texts
  GivenTokens given;                 ///< for a model, instead of a text
  bool repeats = false;              ///< for a model: random tokens twice, instead of a text
  std::optional<std::string> layer;  ///< the layer's name; none: all layers
  WeighedBy by = WeighedBy::attention;

  /// Reads the call's tensors that have positions. If empty, they are read whole.
  TensorReading read;
  /// Computes the call over ranks. If empty, this process computes it. The result includes the output if
  /// --check needs it.
  std::function<AttentionResult(const AttentionOptions&)> attend;

  [[nodiscard]] bool is_run() const;             ///< a folder of captured calls
  [[nodiscard]] bool has_several_texts() const;  ///< for a model, after complete_source()
};

void add_source_options(CLI::App& app, LookSource& source);

/// Checks that need several options; call it after parsing. With --model, `document` and `words` become
/// `text`. Throws UsageError.
void complete_source(const CLI::App& app, LookSource& source);

[[nodiscard]] std::vector<NamedFile> input_files(const LookSource& source);

/// The shell command that repeats this call without its question and outputs; the page appends its own
/// questions. A saved or opened document replaces the input tensors.
[[nodiscard]] std::string question_command(const CLI::App& app, const LookSource& source,
                                           const std::string& saved);

struct SourceText {
  std::string text;  ///< empty for tokens without a text
  ModelTokens tokens;
};
/// Reads WORDS, the only --text, --ids or --chat; or draws the random tokens of --protocol.
[[nodiscard]] SourceText read_text(const Model& model, const LookSource& source);

/// The number of the layer of --layer. Throws UsageError if the model has no such layer.
[[nodiscard]] std::optional<std::int64_t> layer_of(const Model& model, const LookSource& source);

/// The call of all layers that the source asks for, still without a report.
[[nodiscard]] Document document_of(const Model& model, const SourceText& text, const LookSource& source);

/// The call of a file, of tensors, or of a model that reads its text.
[[nodiscard]] Document read_document(const LookSource& source);

}  // namespace heed::cli
