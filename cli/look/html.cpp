#include "look/html.hpp"

#include <algorithm>
#include <filesystem>

#include "look/print.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kTile = 256;                // rows and keys of a tile
constexpr std::int64_t kMostWeights = 64'000'000;  // over all heads of a model
constexpr std::int64_t kModelPageBytes =
    20'000'000;  // a model has many heads, so its page omits the finest level

TileRange tile_around(const Place& place, const AttentionReport& report) {
  const auto begin = [](std::int64_t at, std::int64_t count) {
    return std::clamp<std::int64_t>(at - kTile / 2, 0, std::max<std::int64_t>(0, count - kTile));
  };
  const std::int64_t row = begin(place.row, report.queries);
  const std::int64_t key = begin(place.key, report.keys);
  return {row, std::min(row + kTile, report.queries), key, std::min(key + kTile, report.keys)};
}

void add_weights(Document& document, const LookArguments& arguments) {
  AttentionReport& report = document.report;
  const auto piece = [&](const TileRange& range) { return attention_tile(document, range); };
  const std::int64_t heads = arguments.model.empty() ? 1 : report.heads;
  if (report.queries <= std::min(kFullWeightsCells, kMostWeights / heads) / report.keys) {
    report.weights = piece({0, report.queries, 0, report.keys});
    return;
  }
  for (const Place& place : arguments.tiles_around) report.tiles.push_back(piece(tile_around(place, report)));
}

}  // namespace

std::string question_command(const CLI::App& app, const LookArguments& arguments) {
  const std::string& document = arguments.save.empty() ? arguments.document : arguments.save;
  if (!document.empty()) return "heed look " + shell_quoted(document);
  if (!arguments.model.empty())
    return "heed look --model " + shell_quoted(arguments.model) +
           (arguments.layer ? " --layer " + *arguments.layer : "") +
           (arguments.by == WeighedBy::norm ? " --by norm " : " ") +
           (arguments.texts.empty() ? shell_quoted(arguments.text)
                                    : "--text " + shell_quoted(arguments.texts.front()));
  std::string command = "heed look";
  for (const GivenOption& option : given_options(app)) {
    if (!belongs_to_call(option.group)) continue;
    command += ' ';
    command += option.name;
    for (const std::string& value : option.values) command += " " + shell_quoted(value);
  }
  return command;
}

HtmlPage look_page(Document& document, const LookArguments& arguments, const std::string& command,
                   const std::optional<DocumentCheck>& proof) {
  add_weights(document, arguments);
  AttentionReport& report = document.report;
  const std::string source = arguments.document.empty() ? arguments.call.query : arguments.document;
  HtmlPage page;
  std::string name =
      std::filesystem::path(arguments.model.empty() ? source : arguments.model).filename().string();
  if (arguments.layer) name += ", layer " + *arguments.layer;
  // The title comes from the words; without words, from the document's name.
  if (report.query_tokens.empty() && !arguments.document.empty()) page.title = name;
  page.about = name + ": " + call_line(document);
  page.query_tokens = report.query_tokens;
  page.key_tokens = report.key_tokens;
  page.cross = page.query_tokens != page.key_tokens;
  page.heads = report.batch * report.heads;
  page.report = &report;
  page.look = command;
  if (!arguments.model.empty()) page.most_bytes = kModelPageBytes;
  if (arguments.proof && proof) page.proof = &*proof;
  return page;
}

}  // namespace heed::cli
