// The page for looking inside: one HTML file that holds its numbers and needs nothing else, no network
// either.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heed/document.hpp"
#include "heed/export.hpp"
#include "heed/inspect.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// One step of a computation, as the page shows it.
struct PageStep {
  std::string name;               ///< "scores"; docs/page.md lists those that the page can explain
  std::string title;              ///< for people
  std::string formula;            ///< "s_ij = q_i · k_j"; what follows an underscore is set as a subscript
  std::string meaning;            ///< one sentence
  std::vector<std::string> axes;  ///< as many as the value has: "H" or "Hkv", "Lq" or "Lk", "D", "d_k", …
  TensorView value;               ///< floats, or i64 of less than 2^31
};

/// What a page shows. All text is UTF-8 and may hold anything: the page shows it as text.
struct HtmlPage {
  std::string title;                      ///< of the window: the sentence
  std::string about;                      ///< one line: "Self-attention: 6 words, 1 head, …"
  std::vector<std::string> query_tokens;  ///< the words that ask
  std::vector<std::string> key_tokens;    ///< the words attended to
  bool cross = false;                     ///< these are another sentence's
  std::int64_t heads = 1;                 ///< of all batch entries together
  /// What the maps, the text and the curves show; the page of an explanation takes the weights from its
  /// steps.
  const AttentionReport* report = nullptr;
  /// The command that answers what the page does not hold, to which it adds --head, --row and --tile: "heed
  /// look doc.safetensors". Empty: none.
  std::string look;
  /// What check_document() found in the report: a badge that says it.
  const DocumentCheck* proof = nullptr;
  /// Whether the page comes from `heed look --serve`, which it may then ask for what it does not hold. Pages
  /// in files have no network.
  bool served = false;
  /// The size of the file at most; 0: any, but where every weight would take more than 32 MB: then 12 MB. To
  /// stay within it the page of a report has coarser maps, then fewer of the keys attended to most, and last
  /// no figures of rows and keys.
  std::int64_t most_bytes = 0;
  std::vector<PageStep> steps;                              ///< in the order of the computation
  std::vector<std::pair<std::string, TensorView>> weights;  ///< that the steps are computed with, by name
};

/// Values that the steps of a page may have together. More would make a file that browsers load slowly.
inline constexpr std::int64_t kMostPageValues = 4'000'000;

/// Writes the page, whole or not at all, and says what it left out to stay within most_bytes ("" for
/// nothing). Throws Error: invalid_argument where a step's axes do not fit its value, the steps have more
/// than kMostPageValues values, or the least page takes more than most_bytes; io where the file cannot be
/// written.
HEED_API std::string write_html(const std::string& path, const HtmlPage& page);

/// The page's text, as write_html() writes it. Throws as that does.
[[nodiscard]] HEED_API std::string html_text(const HtmlPage& page);

}  // namespace heed
