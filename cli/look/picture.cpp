#include "look/picture.hpp"

#include <algorithm>
#include <utility>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "look/names.hpp"
#include "look/print.hpp"
#include "picture/heads.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMostCells = 128;  // per side; larger maps use bins
constexpr std::int64_t kBins = 256;

std::string title_of(const Document& document, const HeadSummary& head) {
  std::string title = name_of_head(document.report, head.head);
  if (document.report.batch > 1) title = "batch " + std::to_string(head.batch) + ", " + title;
  title += ": " + std::string(head.name());
  const std::string score = score_text(head);
  return printable(score.empty() ? title : title + " " + score);
}

}  // namespace

void write_look_picture(const std::string& path, const Document& document,
                        const std::vector<HeadSummary>& heads, const std::string& title) {
  const AttentionReport& report = document.report;
  if (heads.empty() || report.queries == 0 || report.keys == 0)
    throw UsageError("--png is given, but there are no weights to draw");
  const bool single = report.queries <= kMostCells && report.keys <= kMostCells;
  HeadsPicture picture;
  picture.title = printable(title);
  picture.about.push_back(
      "weights of rows (down) on keys (across)" +
      std::string(single ? "; sand: masked" : ", in bins: the share that a row gives to the keys of a bin"));
  picture.about.push_back("full ink: the largest weight, without the first key and rows of one key" +
                          std::string(single ? "" : "; square-root scale"));
  std::vector<HeadMap> maps;
  if (heads.size() > 1) maps = head_maps(document, single ? kMostCells : kBins);
  for (const HeadSummary& head : heads)
    picture.heads.push_back({title_of(document, head), std::string(head.name()),
                             maps.empty()
                                 ? head_map(document, head.batch, head.head, single ? kMostCells : kBins)
                                 : maps[static_cast<std::size_t>(head.batch * report.heads + head.head)]});
  io::write_text(path, draw_heads(picture, picture_format("--png", path)));
}

}  // namespace heed::cli
