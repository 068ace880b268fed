#include "look/page.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <utility>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "look/heads_print.hpp"
#include "look/print.hpp"
#include "looked_at.hpp"
#include "options.hpp"
#include "picture/heads.hpp"
#include "serve/document_server.hpp"
#include "text.hpp"
#include "train/stop_signals.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kRowsToCheck = 16;         // of each head, for --check without a number
constexpr std::int64_t kTile = 256;               // rows and keys of a tile
constexpr std::int64_t kMaxWeights = 64'000'000;  // over all heads of a model
constexpr std::int64_t kModelPageBytes =
    20'000'000;                          // a model has many heads, so its page omits the finest level
constexpr std::int64_t kMaxCells = 128;  // of a picture, per side; larger maps use bins
constexpr std::int64_t kBins = 256;
constexpr std::size_t kFewHeads = 16;  // of a picture; more have short titles

// The names of its layers with the document's name before each.
std::vector<LayerHeads> layers_of(const AttentionReport& report, const std::string& name) {
  if (report.layers.empty()) return {{name, report.heads}};
  std::vector<LayerHeads> layers;
  for (const LayerHeads& layer : report.layers) layers.push_back({name + " " + layer.name, layer.heads});
  return layers;
}

void require_alike(const AttentionReport& own, const AttentionReport& other, const std::string& path) {
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    refuse_usage("--beside is '", path, "', which has ", found, "; ", expected,
                 ", as the first document has, are expected");
  };
  const auto same = [&](const char* what, std::int64_t found, std::int64_t expected) {
    if (found != expected) refuse(std::to_string(found) + " " + what, std::to_string(expected));
  };
  if (other.dtype != own.dtype)
    refuse("numbers of " + std::string(name_of(other.dtype)), "those of " + std::string(name_of(own.dtype)));
  same("batch entries", other.batch, own.batch);
  same("heads", other.heads, own.heads);
  same("rows", other.queries, own.queries);
  same("keys", other.keys, own.keys);
}

// The report of both: first the heads of `own`, then as many of the saved document at `path`. Throws
// UsageError if that document has another number of rows, keys, heads or batch entries. Its words are left
// out.
AttentionReport with_beside(const AttentionReport& own, const std::string& name, const std::string& path,
                            const PageOptions& options) {
  Document document = open_looked_at(path);
  require_alike(own, document.report, path);
  AttentionReport& other = document.report;
  add_page_weights(document, options, 2 * own.heads);
  std::vector<LayerHeads> layers = layers_of(own, name);
  const std::string stem = std::filesystem::path(path).stem().string();
  for (LayerHeads& layer : layers_of(other, stem == name ? stem + " beside" : stem))
    layers.push_back(std::move(layer));
  other.query_tokens = own.query_tokens;
  other.key_tokens = own.key_tokens;
  other.query_token_ids = own.query_token_ids;
  other.key_token_ids = own.key_token_ids;
  AttentionReport both = join_layers({{"own", own}, {"beside", std::move(other)}});
  both.layers = std::move(layers);
  return both;
}

TileRange tile_around(const Place& place, const AttentionReport& report) {
  const auto begin = [](std::int64_t at, std::int64_t count) {
    return std::clamp<std::int64_t>(at - kTile / 2, 0, std::max<std::int64_t>(0, count - kTile));
  };
  const std::int64_t row = begin(place.row, report.queries);
  const std::int64_t key = begin(place.key, report.keys);
  return {row, std::min(row + kTile, report.queries), key, std::min(key + kTile, report.keys)};
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// The text that a model reads, as the user typed or named it; else the document's name. Empty for tensors and
// tokens.
std::string title_of(const LookSource& source) {
  if (!source.model.empty())
    return source.texts.empty() ? source.text : file_name(name_of_text(source.texts.front()));
  return file_name(source.document);
}

// The title above the picture, which has no tokens beside it.
std::string title_of_picture(const LookSource& source, const PageOptions& options) {
  if (!options.title.empty()) return options.title;
  if (!source.model.empty()) return file_name(source.model) + ": " + title_of(source);
  return source.document.empty() ? file_name(source.call.query) : title_of(source);
}

// Among many heads, "3.1 induction 0.93"; else "layer 3, head 1: induction 0.93".
std::string title_of_head(const Document& document, const HeadSummary& head, bool many) {
  std::string title = many ? head_label(document.report, head.batch, head.head) + " "
                           : plane_text(document, head.batch, head.head) + ": ";
  title += head.name();
  const std::string score = score_text(head);
  return printable(score.empty() ? title : title + " " + score);
}

std::int64_t rows_to_check(const std::string& text) {
  const auto rows = text.empty() ? kRowsToCheck : whole_number(text).value_or(0);
  if (rows < 1) refuse_value("--check", text, "a whole number of at least 1");
  return rows;
}

}  // namespace

void add_page_options(CLI::App& app, PageOptions& options) {
  add_text(app, "--html", "FILE.html", options.html,
           "draw the heads on a page for a browser: maps, curves, the words");
  add_text(app, "--picture", "FILE", options.picture,
           "with --html or --serve: a PNG or JPEG file that the page shows under the weights of its patches");
  add_text_option(
      app, "--grid", "ROWSxCOLUMNS",
      [&](const std::string& text) {
        const auto [rows, columns] = integer_pair("--grid", text, 'x', 1, "ROWSxCOLUMNS (1 or more each)");
        options.grid = {rows, columns};
      },
      "with --picture: the patches of the picture");
  add_integer(app, "--first-patch", {0}, options.first_patch,
              "with --picture: the key of the first patch (default 0); the others follow, row by row");
  add_text(app, "--title", "TEXT", options.title,
           "with --html, --png or --serve: the title (default: the text, or the file's name)");
  add_text(app, "--beside", "DOC", options.beside,
           "with --html: a saved document whose heads the page subtracts (another text of the same length, "
           "another checkpoint)");
  add_text(app, "--png", "FILE", options.png, "draw the maps of the heads as a picture: .png, .svg or .pdf");
  add_texts_option(
      app, "--tile-at", "ROW,KEY",
      [&](const std::vector<std::string>& places) {
        for (const std::string& place : places) {
          const auto [row, key] = integer_pair("--tile-at", place, ',', 0, "ROW,KEY, counted from 0,");
          options.tiles_around.push_back({row, key});
        }
      },
      "also store the single weights around this place (256 x 256) in the page; may be repeated");
  add_optional_text(
      app, "--check", "[N]", [&](const std::string& text) { options.check = rows_to_check(text); },
      "recompute N rows (default 16) of every head in f64 and print the largest deviations; exit 1 on a "
      "mismatch, or if nothing could be compared");
  add_flag(app, "--proof", options.proof,
           "check as --check does, and show the largest deviations on the page");
  add_flag(
      app, "--serve", options.serve,
      "serve the page to a browser on this machine until Ctrl-C; rows and cells are computed on request");
  add_integer(app, "--port", {0, 65535}, options.port,
              "with --serve: listen on this port (0: any free port)");
}

void add_page_weights(Document& document, const PageOptions& options, std::int64_t heads) {
  AttentionReport& report = document.report;
  const auto piece = [&](const TileRange& range) { return attention_tile(document, range); };
  if (report.queries <=
      std::min(kFullWeightsCells, kMaxWeights / std::max<std::int64_t>(heads, 1)) / report.keys) {
    report.weights = piece({0, report.queries, 0, report.keys});
    return;
  }
  for (const Place& place : options.tiles_around) report.tiles.push_back(piece(tile_around(place, report)));
}

void check_page_options(const PageOptions& options) {
  if (options.serve && !can_serve())
    refuse_usage(
        "--serve is given, but this heed was built without cpp-httplib and cannot serve; one built "
        "where libcpp-httplib-dev is installed can, and --html writes the page into a file");
  if (!options.png.empty()) (void)picture_format("--png", options.png);
  require_page_ending(options.html);
}

void check_page(const Document& document, const PageOptions& options) {
  const std::int64_t queries = axis_size(document, 2);
  const std::int64_t keys = key_count(document);
  if (options.has_page() && (queries == 0 || keys == 0))
    refuse_usage(options.html.empty() ? "--serve" : "--html", " is given for a call without queries or keys");
  for (const Place& place : options.tiles_around) {
    check_index("--tile-at", place.row, queries, "query", "queries");
    check_index("--tile-at", place.key, keys, "key");
  }
}

std::optional<DocumentCheck> check_of(const Subject& subject, const PageOptions& options) {
  if (!options.is_checked()) return std::nullopt;
  return check_document(subject.document, options.check.value_or(kRowsToCheck),
                        subject.shared.batch.value_or(-1), subject.only_head());
}

void print_check(const TextOutput& output, const Document& document, const DocumentCheck& check) {
  std::string counts = "checked in f64: " + counted(check.rows, "row");
  if (check.keys > 0) counts += ", " + counted(check.keys, "key");
  if (check.bins > 0) counts += ", " + counted(check.bins, "bin") + " of the map";
  output.stream << '\n' << counts << '\n';
  if (check.nan_rows > 0) output.stream << counted(check.nan_rows, "row") << " of NaN, not compared\n";
  if (check.lost_rows > 0)
    output.stream << counted(check.lost_rows, "row")
                  << " not compared: their scores are too large to compare after rounding\n";
  for (const auto& [batch, head] : check.bare_heads)
    output.stream << plane_text(document, batch, head) << ": no row could be compared\n";
  if (!check.output && !document.has_value)
    output.stream << "the output was not rebuilt: the document holds no values\n";
  else if (!check.output)
    output.stream << "the output was not rebuilt: dropout drops some of its weights\n";
  for (const CheckLine& line : check.lines) {
    char text[64];
    std::snprintf(text, sizeof text, "%9.2e  (at most %.2e)", line.deviation, line.allowed);
    output.stream << left_aligned(line.what, 42) << text << (line.holds() ? "" : "  MISMATCH") << '\n';
  }
}

Json checks_json(const DocumentCheck& check) {
  Json list = Json::array();
  for (const CheckLine& line : check.lines)
    list.push_back({{"what", line.what},
                    {"deviation", line.deviation},
                    {"allowed", line.allowed},
                    {"holds", line.holds()}});
  return list;
}

Json checked_json(const DocumentCheck& check) {
  return {{"rows", check.rows},
          {"nan_rows", check.nan_rows},
          {"lost_rows", check.lost_rows},
          {"keys", check.keys},
          {"bins", check.bins}};
}

void require_that_it_holds(const DocumentCheck& check, const std::string& option) {
  if (!check.holds())
    detail::refuse(ErrorCode::internal, option, " found a mismatch: what is shown is not what was computed");
  if (check.rows > 0) return;
  const bool nan = check.nan_rows > 0 && check.lost_rows == 0;
  detail::refuse(ErrorCode::internal, option, " could compare no row: ",
                 nan                   ? "all rows that it took are NaN"
                 : check.lost_rows > 0 ? "their scores are too large to compare after rounding"
                                       : "the call has none");
}

LookPage look_page(Subject& subject, const PageOptions& options, const std::string& command,
                   const std::optional<DocumentCheck>& proof) {
  AttentionReport& report = subject.document.report;
  const LookSource& source = subject.source;
  const bool beside = !options.beside.empty();
  add_page_weights(subject.document, options,
                   beside                 ? 2 * report.heads
                   : source.model.empty() ? 1
                                          : report.heads);
  const std::string path = !source.model.empty()     ? source.model
                           : source.document.empty() ? source.call.query
                                                     : source.document;
  std::string name = file_name(path);
  LookPage made;
  HtmlPage& page = made.html;
  if (beside) {
    page.beside = report.heads;
    made.both = std::make_unique<const AttentionReport>(
        with_beside(report, std::filesystem::path(path).stem().string(), options.beside, options));
    name += " beside " + file_name(options.beside);
  }
  if (source.layer) name += ", layer " + *source.layer;
  // A page without a title takes its words.
  page.title = !options.title.empty()     ? options.title
               : !options.picture.empty() ? file_name(options.picture)
               : !source.document.empty() ? name
                                          : title_of(source);
  page.about = name + ": " + call_line(subject.document);
  page.query_tokens = report.query_tokens;
  page.key_tokens = report.key_tokens;
  page.cross = page.query_tokens != page.key_tokens;
  page.heads = report.batch * report.heads * (beside ? 2 : 1);
  page.report = beside ? made.both.get() : &report;
  if (!options.picture.empty())
    page.picture =
        PagePicture{file_text(options.picture), options.grid.rows, options.grid.columns, options.first_patch};
  if (!beside) page.look = command;
  if (!source.model.empty()) page.most_bytes = kModelPageBytes;
  if (options.proof && proof) page.proof = &*proof;
  return made;
}

void write_look_picture(const std::string& path, const Subject& subject,
                        const std::vector<HeadSummary>& heads, const PageOptions& options) {
  const Document& document = subject.document;
  const AttentionReport& report = document.report;
  if (heads.empty() || report.queries == 0 || report.keys == 0)
    refuse_usage("--png is given, but there are no weights to draw");
  const bool single = report.queries <= kMaxCells && report.keys <= kMaxCells;
  const std::int64_t bins = single ? kMaxCells : kBins;
  HeadsPicture picture;
  picture.title = printable(title_of_picture(subject.source, options));
  std::vector<HeadMap> maps;
  if (heads.size() > 1) maps = head_maps(document, bins);
  for (const HeadSummary& head : heads)
    picture.heads.push_back({title_of_head(document, head, heads.size() > kFewHeads), head.name(),
                             maps.empty()
                                 ? head_map(document, head.batch, head.head, bins)
                                 : maps[static_cast<std::size_t>(head.batch * report.heads + head.head)]});
  const bool masked =
      std::ranges::any_of(picture.heads, [](const DrawnHead& head) { return head.map.is_masked(); });
  picture.about.push_back(
      "weights of rows (down) on keys (across)" +
      std::string(single ? "" : ", in bins: the share that a row gives to the keys of a bin") +
      (masked ? "; sand: masked" : ""));
  picture.about.push_back("full ink: the largest weight, without the first key and rows of one key" +
                          std::string(single ? "" : "; square-root scale"));
  io::write_text(path, draw_heads(picture, picture_format("--png", path)));
}

void serve_document(const Document& document, HtmlPage page, std::int64_t port) {
  HttpServer http(static_cast<int>(port));
  page.served = true;
  const DocumentServer server(document, html_text(page), random_token(), http.port());
  const StopSignals signals;
  std::cout << "\nOpen " << server.address() << " in a browser on this machine. Ctrl-C stops the server.\n"
            << std::flush;
  http.run([&](const HttpQuestion& question) { return server.answer(question); }, StopSignals::asked);
  std::cout << "\nThe server has stopped.\n";
}

}  // namespace heed::cli
