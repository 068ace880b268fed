// What `heed who` and `heed atlas` are about: a saved document, or a model that reads a text.
#pragma once

#include <string>

#include "heed/document.hpp"
#include "heed/model.hpp"

namespace heed::cli {

/// The document of a file, with a report: that of the file, or (of `heed explain --save`) made now. Of a
/// folder that heed.transformers.capture(weights=True, to=…) wrote, its first pass.
[[nodiscard]] Document open_looked_at(const std::string& path);

/// The tokens of a text, as Model::tokenize() gives them. Says on standard error where there are more than
/// the model was trained on.
[[nodiscard]] ModelTokens read_tokens_of(const heed::Model& model, const std::string& text,
                                         const std::string& source);

/// All layers of a model while it reads a text, with a report without a map. Throws Error that begins with
/// `source` for a text that it cannot read.
[[nodiscard]] Document read_with_model(const heed::Model& model, const std::string& text,
                                       const std::string& source);

/// What a text file holds. Throws Error (io) where it cannot be read.
[[nodiscard]] std::string file_text(const std::string& path);

/// "3.1", or "1" where heads are of no layer.
[[nodiscard]] std::string head_label(const AttentionReport& report, std::int64_t head);
/// The same with its batch entry where there are several: "batch 1, 3.1".
[[nodiscard]] std::string head_label(const AttentionReport& report, std::int64_t batch, std::int64_t head);

/// The summary of a head.
[[nodiscard]] const HeadSummary& summary_of(const AttentionReport& report, std::int64_t batch,
                                            std::int64_t head);

}  // namespace heed::cli
