#include "look/choice.hpp"

#include <algorithm>

#include "command.hpp"
#include "options.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr std::size_t kMostNamesTold = 12;

std::string quoted(const std::string& option, const std::string& text) {
  return option + " is '" + text + "'";
}

// "0 to 5" if layers are numbered consecutively, else their names.
std::string names_of(const std::vector<LayerHeads>& layers) {
  if (layers.size() == 1) return layers[0].name + " alone";
  std::string names;
  bool numbered = true;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    numbered = numbered && layers[i].name == std::to_string(i);
    if (i < kMostNamesTold) names += (i > 0 ? ", " : "") + layers[i].name;
  }
  if (numbered) return "0 to " + std::to_string(layers.size() - 1);
  return names + (layers.size() > kMostNamesTold ? ", …" : "");
}

std::optional<HeadSpan> find_layer(const std::vector<LayerHeads>& layers, const std::string& name) {
  std::int64_t begin = 0;
  for (const LayerHeads& layer : layers) {
    if (layer.name == name) return HeadSpan{begin, begin + layer.heads};
    begin += layer.heads;
  }
  return std::nullopt;
}

// Parses "1.3". `point` is the last point, because layer names may contain points.
std::int64_t head_in_layer(const std::string& text, std::size_t point, const Document& document) {
  const std::vector<LayerHeads>& layers = document.report.layers;
  const std::string name = text.substr(0, point);
  const std::optional<HeadSpan> span = find_layer(layers, name);
  if (layers.empty())
    throw UsageError(quoted("--head", text) +
                     ", but this call has no layers; a number, counted from 0, is expected");
  if (!span) throw UsageError(quoted("--head", text) + "; the layers are " + names_of(layers));
  const std::int64_t number = whole_number(text.substr(point + 1)).value_or(-1);
  if (number < 0 || number >= span->end - span->begin)
    throw UsageError(quoted("--head", text) + "; layer " + name + " has the heads 0 to " +
                     std::to_string(span->end - span->begin - 1));
  return span->begin + number;
}

std::int64_t head_named(const std::string& text, const Document& document, const HeadSpan& layer) {
  const std::size_t point = text.rfind('.');
  if (point != std::string::npos) {
    const std::int64_t head = head_in_layer(text, point, document);
    if (head >= layer.begin && head < layer.end) return head;
    throw UsageError(quoted("--head", text) + ", which is not in the layer of --layer");
  }
  const std::optional<std::int64_t> number = whole_number(text);
  const std::int64_t count = layer.end - layer.begin;
  if (!number || *number < 0)
    throw UsageError(quoted("--head", text) +
                     "; a head (3, or 1.3 for layer 1, head 3), or several separated by commas, is expected");
  if (*number >= count)
    throw UsageError("--head is " + text + "; there are " + std::to_string(count) + " heads, counted from 0");
  return layer.begin + *number;
}

class RowChoice {
 public:
  RowChoice(const Document& document, std::vector<std::int64_t>& rows)
      : tokens_(document.report.query_tokens), count_(axis_size(document, 2)), rows_(rows) {}

  void add_words(const std::string& option, const std::string& word) {
    for (const std::int64_t row : word_places(option, word, tokens_, count_)) add(row);
  }

  // Adds a number, a range or words. Returns whether it was clipped.
  bool add_part(const std::string& part) {
    const std::vector<std::string> ends = split(part, ':');
    const auto begin = whole_number(ends[0]);
    const auto end = ends.size() == 2 ? whole_number(ends[1]) : std::nullopt;
    if (begin && ends.size() == 1) return add_range(part, *begin, *begin + 1);
    if (begin && end) return add_range(part, *begin, *end);
    if (part.empty() || tokens_.empty())
      throw UsageError(quoted("--row", part) + "; a row (5), rows (5:10)" +
                       (tokens_.empty() ? "" : ", a word") +
                       ", or several separated by commas, counted from 0, is expected");
    add_words("--row", part);
    return false;
  }

 private:
  bool add_range(const std::string& part, std::int64_t begin, std::int64_t end) {
    if (begin < 0 || end <= begin)
      throw UsageError(quoted("--row", part) +
                       "; a row, or rows R0:R1 (R0 to R1 - 1), counted from 0, is expected");
    if (begin >= count_)
      throw UsageError("--row is " + part + "; there are " + std::to_string(count_) +
                       " queries, counted from 0");
    for (std::int64_t row = begin; row < std::min(end, count_); ++row) add(row);
    return end > count_;
  }

  void add(std::int64_t row) {
    if (seen_.empty()) seen_.resize(static_cast<std::size_t>(count_));
    if (seen_[static_cast<std::size_t>(row)]) return;
    seen_[static_cast<std::size_t>(row)] = true;
    rows_.push_back(row);
  }

  const std::vector<std::string>& tokens_;
  std::int64_t count_;
  std::vector<std::int64_t>& rows_;
  std::vector<bool> seen_;
};

}  // namespace

std::int64_t axis_size(const Document& document, int from_behind) {
  const AttentionReport& report = document.report;
  if (document.has_report)
    return from_behind == 2 ? report.queries : from_behind == 3 ? report.heads : report.batch;
  return document.query.rank() < from_behind ? 1 : document.query.size(-from_behind);
}

std::int64_t key_count(const Document& document) {
  return document.has_report ? document.report.keys : document.key.size(-2);
}

HeadSpan heads_of_layer(const std::vector<LayerHeads>& layers, const std::string& name) {
  const std::optional<HeadSpan> span = find_layer(layers, name);
  if (layers.empty()) throw UsageError("--layer is " + name + ", but this call has no layers");
  if (!span) throw UsageError("--layer is " + name + "; the layers are " + names_of(layers));
  return *span;
}

std::vector<std::int64_t> heads_named(const Document& document, const std::optional<std::string>& layer,
                                      const std::vector<std::string>& names) {
  HeadSpan span{0, axis_size(document, 3)};
  if (layer) span = heads_of_layer(document.report.layers, *layer);
  std::vector<std::int64_t> heads;
  for (const std::string& name : names) heads.push_back(head_named(name, document, span));
  if (layer && heads.empty())
    for (std::int64_t head = span.begin; head < span.end; ++head) heads.push_back(head);
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

bool choose_rows(const Document& document, LookArguments& arguments) {
  RowChoice choice(document, arguments.rows);
  const std::vector<std::string>& tokens = document.report.query_tokens;
  if (arguments.word) {
    if (tokens.empty())
      throw UsageError(
          "--token is given, but no tokens are known; --tokens FILE (a line a token) is expected");
    choice.add_words("--token", *arguments.word);
  }
  if (!arguments.row) return false;
  // A token may contain a comma or a colon.
  if (std::find(tokens.begin(), tokens.end(), *arguments.row) != tokens.end() &&
      !whole_number(*arguments.row)) {
    choice.add_words("--row", *arguments.row);
    return false;
  }
  bool longer = false;
  for (const std::string& part : split(*arguments.row, ',')) longer = choice.add_part(part) || longer;
  return longer;
}

bool is_asked_for(const LookArguments& arguments, std::int64_t batch, std::int64_t head) {
  return batch == arguments.batch.value_or(batch) &&
         (arguments.heads.empty() ||
          std::binary_search(arguments.heads.begin(), arguments.heads.end(), head));
}

std::int64_t only_head(const LookArguments& arguments) {
  return arguments.heads.size() == 1 ? arguments.heads[0] : -1;
}

}  // namespace heed::cli
