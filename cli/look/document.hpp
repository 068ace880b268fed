// A call that was looked at once and can be asked about ever after: query, key, lse and summaries in one
// safetensors file.
#pragma once

#include <string>
#include <vector>

#include "attend_inputs.hpp"
#include "heed/inspect.hpp"

namespace heed::cli {

/// The view as [B, H, L, D]: axes that it lacks have size 1.
[[nodiscard]] TensorView lifted(TensorView view);

/// What there is to look at. With a report the views of `call` are [B, H, L, D]; before, they may lack axes.
struct Subject {
  AttendInputs call;
  bool has_value = true;    ///< the value is real: a document of `look` has none, its keys stand in
  bool has_report = false;  ///< the report is there already
  std::vector<std::string> query_tokens, key_tokens;  ///< none where not given
  AttentionReport report;
};

/// Reads what save_document() or `heed explain --save` wrote. Throws Error (io), naming the file, for
/// anything else and for what does not fit together.
[[nodiscard]] Subject read_document(const std::string& path);

/// Tensors query, key, those of the options, and all that the report has a row, a key or a bin. The metadata
/// are format ("heed look 1"), call, tokens, key_tokens and summaries (JSON; lists that are long in pieces).
void save_document(const std::string& path, const Subject& subject);

}  // namespace heed::cli
