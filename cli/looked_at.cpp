#include "looked_at.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "captured_run.hpp"
#include "command.hpp"
#include "heed/error.hpp"
#include "heed/model/look.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {

void add_subject_arguments(CLI::App& app, std::string& document, std::vector<std::string>& words) {
  add_argument(app, "DOC", document,
               "a file written by heed look --save or heed explain --save, or a folder written by "
               "heed.transformers.capture(weights=True, to=…)");
  add_argument(
      app, "WORDS", words,
      "with --model: the text to read; its first word takes the place of DOC; - reads standard input");
}

Document open_looked_at(const std::string& path) {
  if (is_folder(path)) return open_captured_weights(path);
  Document document = open_document(path);
  if (!document.has_report) fill_report(document);
  return document;
}

void check_context(const heed::Model& model, std::size_t tokens, const std::string& source) {
  const ModelInfo& info = model.info();
  if (info.fixed_context && static_cast<std::int64_t>(tokens) > info.context)
    refuse_usage(source, " has ", tokens, " tokens; at most ", info.context,
                 ", the context of the model, are expected");
}

void warn_of_length(const heed::Model& model, const ModelTokens& tokens, const std::string& source) {
  const ModelInfo& info = model.info();
  if (std::ssize(tokens.ids) > info.context && !info.fixed_context)
    std::cerr << "heed: " << printable(source) << " has " << tokens.ids.size()
              << " tokens; the model was trained on up to " << info.context
              << ", so its heads may behave differently beyond them" << std::endl;
}

ModelTokens read_tokens_of(const heed::Model& model, const std::string& text, const std::string& source) {
  ModelTokens tokens = model.tokenize(text, source);
  const auto has_no_text = [](const TextToken& token) { return token.special || token.begin == token.end; };
  if (std::ranges::all_of(tokens.places, has_no_text) && !tokens.places.empty())
    refuse_usage(source, " has no words; at least one is expected");
  check_context(model, tokens.ids.size(), source);
  warn_of_length(model, tokens, source);
  return tokens;
}

Document read_with_model(const heed::Model& model, const ModelTokens& tokens) {
  Document document = document_of_text(model, tokens);
  fill_report(document, {.map = {}});
  return document;
}

namespace {

// Says why, if the operating system did.
[[noreturn]] void refuse_unread(const std::string& path) {
  const std::string reason = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  detail::refuse(ErrorCode::io, path, " could not be read", reason);
}

}  // namespace

std::string all_of_standard_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (std::cin.bad()) throw Error(ErrorCode::io, "standard input could not be read");
  return text;
}

std::string typed_text(const std::string& words) { return words == "-" ? all_of_standard_input() : words; }

std::string other_text(const std::string& option, const std::string& other, const std::string& text) {
  if (other == "-" && text == "-")
    refuse_usage("the text and ", option, " are both '-'; only one can be standard input");
  return typed_text(other);
}

std::string name_of_text(const std::string& path) { return path == "-" ? "standard input" : path; }

std::string file_text(const std::string& path) {
  if (path == "-") return all_of_standard_input();
  if (is_folder(path)) detail::refuse(ErrorCode::io, path, " is a folder; a text file is expected");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_unread(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) refuse_unread(path);
  return text;
}

std::vector<std::string> read_tokens(const std::string& option, const std::string& path,
                                     std::int64_t expected, const char* of) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) detail::refuse(ErrorCode::io, path, " could not be opened: ", std::strerror(errno));
  std::vector<std::string> tokens;
  std::int64_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    if (lines >= expected) continue;  // counted for the message, but not stored
    if (line.ends_with('\r')) line.pop_back();
    if (!is_utf8(line)) detail::refuse(ErrorCode::io, path, " is not UTF-8 text (line ", lines + 1, ")");
    tokens.push_back(std::move(line));
  }
  if (file.bad() || !file.eof()) refuse_unread(path);
  if (lines != expected)
    refuse_usage(option, " has ", counted(lines, "line"), "; ", expected, ", one for each of the ", of,
                 ", is expected");
  return tokens;
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
