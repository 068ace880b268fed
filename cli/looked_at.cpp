#include "looked_at.hpp"

#include <fstream>
#include <iterator>
#include <utility>

#include "captured_weights.hpp"
#include "heed/error.hpp"
#include "heed/model_look.hpp"
#include "look/run.hpp"

namespace heed::cli {

Document open_looked_at(const std::string& path) {
  if (is_folder(path)) return open_captured_weights(path);
  Document document = open_document(path);
  if (!document.has_report) fill_report(document);
  return document;
}

Document read_with_model(const heed::Model& model, const std::string& text, const std::string& source) {
  Document document = document_of_text(model, model.tokenize(text, source));
  fill_report(document, {.map = {}});
  return document;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) throw Error(ErrorCode::io, path + " could not be read");
  return text;
}

std::string head_label(const AttentionReport& report, std::int64_t head) {
  const HeadPlace place = place_of(report, head);
  const std::string number = std::to_string(place.head);
  return place.layer < 0 ? number : report.layers[static_cast<std::size_t>(place.layer)].name + "." + number;
}

std::string head_label(const AttentionReport& report, std::int64_t batch, std::int64_t head) {
  const std::string label = head_label(report, head);
  return report.batch > 1 ? "batch " + std::to_string(batch) + ", " + label : label;
}

const HeadSummary& summary_of(const AttentionReport& report, std::int64_t batch, std::int64_t head) {
  return report.summaries[static_cast<std::size_t>(batch * report.heads + head)];
}

}  // namespace heed::cli
