// The inspection page: one self-contained HTML file with its numbers, which needs no network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/inspect/document.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// One step of a computation, as shown on the page.
struct PageStep {
  std::string name;     ///< "scores"; docs/page.md lists the steps that the page explains
  std::string title;    ///< title shown to readers
  std::string formula;  ///< "s_ij = q_i · k_j"; text after an underscore becomes a subscript
  std::string meaning;  ///< one sentence
  /// One name per axis of the value: "H" or "Hkv", "Lq" or "Lk", "D", "d_k", ….
  std::vector<std::string> axes;
  TensorView value;  ///< floats, or i64 of less than 2^31
};

/// A picture whose patches are keys: tokens first … first + rows * columns - 1, row by row.
struct PagePicture {
  std::string bytes;  ///< a PNG or JPEG file of at most kMaxPictureBytes
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t first = 0;
};
inline constexpr std::int64_t kMaxPictureBytes = 8'000'000;

/// Contents of a page. All text is UTF-8 with any characters; the page escapes it.
struct HtmlPage {
  std::string title;                      ///< title of the window: the sentence
  std::string about;                      ///< one line: "Self-attention: 6 words, 1 head, …"
  std::vector<std::string> query_tokens;  ///< the words that attend
  std::vector<std::string> key_tokens;    ///< the words attended to
  bool cross = false;                     ///< key_tokens come from another sentence
  std::int64_t heads = 1;                 ///< number of heads over all batch entries
  /// Data of the maps, the text and the curves. A page with steps takes the weights from its steps instead.
  const AttentionReport* report = nullptr;
  /// Half of the report's heads of a batch entry, if its second half is to be subtracted from the first: the
  /// page opens with head n less head n + beside. 0: none.
  std::int64_t beside = 0;
  /// Shown under the weights of its patches.
  std::optional<PagePicture> picture{};
  /// The command that answers questions beyond the page's data, such as "heed look doc.safetensors". The page
  /// appends --head, --row and --tile. Empty: none.
  std::string look;
  /// Result of check_document() on the report, shown as a badge.
  const DocumentCheck* proof = nullptr;
  /// Whether `heed look --serve` serves the page; the page then requests missing data from it. Pages in files
  /// have no network.
  bool served = false;
  /// Upper limit of the file size in bytes; 0: no limit, but 12 MB if all weights together would take more
  /// than 32 MB. To stay within the limit, the page of a report uses coarser maps, then fewer top keys, and
  /// last drops the numbers of rows and keys.
  std::int64_t most_bytes = 0;
  std::vector<PageStep> steps;                              ///< in order of computation
  std::vector<std::pair<std::string, TensorView>> weights;  ///< weights used by the steps, by name
};

/// Upper limit for the number of values of all steps. More would make a file that browsers load slowly.
inline constexpr std::int64_t kMaxPageValues = 4'000'000;

/// Writes the page atomically and returns a note on what it left out to stay within most_bytes ("" for
/// nothing). Throws Error: invalid_argument if a step's axes do not match its value, if the steps have more
/// than kMaxPageValues values, if the picture is no PNG or JPEG or its patches are no keys, or if even the
/// smallest page exceeds most_bytes; io if the file cannot be written.
HEED_API std::string write_html(const std::string& path, const HtmlPage& page);

/// The text of the page that write_html() writes. Throws as write_html() does.
[[nodiscard]] HEED_API std::string html_text(const HtmlPage& page);

}  // namespace heed
