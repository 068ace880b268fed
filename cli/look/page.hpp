// Results of the summary beside the text: the page of the heads, its server, a picture, and their check.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/inspect/page.hpp"
#include "look/subject.hpp"
#include "look/tables.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// A query and a key, counted from 0.
struct Place {
  std::int64_t row = 0;
  std::int64_t key = 0;
};

struct PageOptions {
  std::string html, png;              ///< files to write; empty if not requested
  std::string title;                  ///< of the page or picture; empty: the text or the file's name
  std::string beside;                 ///< a saved document whose heads the page can subtract
  std::vector<Place> tiles_around;    ///< cells around which the page contains all weights
  std::optional<std::int64_t> check;  ///< rows to check
  bool proof = false;                 ///< the page shows the result of the check
  bool serve = false;                 ///< serve the page and the weights that it requests
  std::int64_t port = 0;              ///< of the server; 0: any free port
  std::string picture;                ///< a PNG or JPEG file whose patches are keys
  MapSize grid{};                     ///< its patches
  std::int64_t first_patch = 0;       ///< the key of the first patch

  [[nodiscard]] bool has_page() const { return !html.empty() || serve; }
  [[nodiscard]] bool is_drawn() const { return has_page() || !png.empty(); }
  [[nodiscard]] bool is_checked() const { return check || proof; }
};

/// --html, --picture, --grid, --first-patch, --title, --beside, --png, --tile-at, --check, --proof, --serve
/// and --port.
void add_page_options(CLI::App& app, PageOptions& options);
/// Throws UsageError for a picture of an unknown format, or if this build cannot serve.
void check_page_options(const PageOptions& options);
/// Throws UsageError if the call has nothing to draw, or lacks a place of --tile-at.
void check_page(const Document& document, const PageOptions& options);

/// The result of --check or --proof; none without them.
[[nodiscard]] std::optional<DocumentCheck> check_of(const Subject& subject, const PageOptions& options);

/// Prints how much was compared, and the largest deviation of each property beside its bound.
void print_check(const TextOutput& output, const Document& document, const DocumentCheck& check);
[[nodiscard]] Json checks_json(const DocumentCheck& check);
/// How much was compared.
[[nodiscard]] Json checked_json(const DocumentCheck& check);

/// Throws Error (internal) for a mismatch, or if nothing could be compared.
void require_that_it_holds(const DocumentCheck& check, const std::string& option);

/// A page, and the report that it shows if that is not the document's.
struct LookPage {
  HtmlPage html;
  std::unique_ptr<const AttentionReport> both{};
};
/// The page of a document. Adds the page's weights to the document's report: all of them if a head has at
/// most kFullWeightsCells cells (fewer for a model with many heads), else tiles of 256 rows and keys around
/// each --tile-at. The subject and `proof`, if the page shows it, must outlive the page.
[[nodiscard]] LookPage look_page(Subject& subject, const PageOptions& options, const std::string& command,
                                 const std::optional<DocumentCheck>& proof);

/// Adds all weights to the report if the heads of the page, `heads` in all, are few enough, else the tiles of
/// the options.
void add_page_weights(Document& document, const PageOptions& options, std::int64_t heads);

/// Draws the maps of `heads` as PNG, SVG or PDF, chosen by the file extension.
void write_look_picture(const std::string& path, const Subject& subject,
                        const std::vector<HeadSummary>& heads, const PageOptions& options);

/// Prints the address, then serves the page and any tile of weights on 127.0.0.1 until Ctrl-C or SIGTERM.
/// Throws Error (io) if the port is not available.
void serve_document(const Document& document, HtmlPage page, std::int64_t port);

}  // namespace heed::cli
