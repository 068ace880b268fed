// heed look: attention patterns at any length.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attend_inputs.hpp"
#include "command.hpp"
#include "heed/inspect/document.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/look.hpp"
#include "heed/model/model.hpp"
#include "help.hpp"
#include "look/answer.hpp"
#include "look/arguments.hpp"
#include "look/check.hpp"
#include "look/choice.hpp"
#include "look/evict.hpp"
#include "look/html.hpp"
#include "look/picture.hpp"
#include "look/print.hpp"
#include "look/ranking.hpp"
#include "look/run.hpp"
#include "look/runner.hpp"
#include "look/serve.hpp"
#include "look/tables.hpp"
#include "look/tokens.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "progress.hpp"
#include "rank_options.hpp"
#include "standard_streams.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLeastLookWidth = 60;
constexpr std::int64_t kSavedMap = 1024;   // bins per side
constexpr double kMostMapBytes = 512e6;    // upper bound for the maps of all heads; bins are reduced to fit
constexpr std::size_t kMostWithKeys = 32;  // most heads whose summary includes the most attended keys
constexpr double kCostWorthSaying = 1e-3;  // seconds

constexpr const char* kLookDescription =
    "show what attended to what, at any length\n"
    "\n"
    "Analyses a call of attention (tensors as for heed attend) and prints what its heads do: exact summaries "
    "of every row, computed without the matrix of weights. --save writes them to one file that answers later "
    "questions at once.";

constexpr const char* kLookExamples =
    "Examples:\n"
    "  heed look --query q.npy --key k.npy --value v.npy --causal \\\n"
    "      --tokens words.txt --save doc.safetensors\n"
    "  heed look doc.safetensors --sort sink\n"
    "  heed look doc.safetensors --row 3 --head 1,2 --top-k 3\n"
    "  heed look doc.safetensors --row 5:10\n"
    "  heed look doc.safetensors --tile 0:4,0:4 --npy tile.npy\n"
    "  heed look doc.safetensors --evict streaming:4+64 --evict h2o:32+32\n"
    "  heed look doc.safetensors --html doc.html\n"
    "  heed look doc.safetensors --serve\n"
    "  heed look --model induction to be or not to be or\n"
    "  heed look --model induction --text one.txt --text two.txt --brief\n"
    "  heed look --model induction 'to be or not to be or' --head 1.3 --row or\n"
    "  heed look --model induction 'to be or not to be or' --ablate 1.2,1.3\n"
    "  heed look --model induction 'to be or not to be or' --attribute not\n"
    "  heed look --model induction 'to be or not to be or' --lens\n"
    "  heed look --model all-MiniLM-L6-v2 --text long.txt --find induction --top 5\n"
    "  heed look --model gpt2 --text long.txt --needle 'the pass phrase is'\n"
    "  heed look --model gpt2 'The cat sat on the mat.' --by norm\n";

// A document, and each head's retrieval of the requested needle.
struct LookedAt {
  Document document;
  std::vector<Retrieval> retrieval{};
};

std::vector<NamedFile> input_files(const LookArguments& arguments) {
  if (is_folder(arguments.document)) return {};
  if (!arguments.document.empty()) return {{"DOC", arguments.document}};
  if (!arguments.model.empty()) {
    std::vector<NamedFile> files = {{"--model", model_file(arguments.model)}};
    for (const std::string& path : arguments.texts) files.push_back({"--text", path});
    return files;
  }
  std::vector<NamedFile> files = attend_input_files(arguments.call);
  if (!arguments.tokens.empty()) files.push_back({"--tokens", arguments.tokens});
  if (!arguments.key_tokens.empty()) files.push_back({"--key-tokens", arguments.key_tokens});
  return files;
}

std::vector<NamedFile> output_files(const LookArguments& arguments) {
  std::vector<NamedFile> files;
  if (!arguments.csv.empty()) files.push_back({"--csv", arguments.csv});
  if (!arguments.npy.empty()) files.push_back({"--npy", arguments.npy});
  if (!arguments.save.empty()) files.push_back({"--save", arguments.save});
  if (!arguments.html.empty()) files.push_back({"--html", arguments.html});
  if (!arguments.png.empty()) files.push_back({"--png", arguments.png});
  return files;
}

Document read_call(const LookArguments& arguments) {
  AttendInputs inputs = read_attend_inputs(arguments.call, arguments.read);
  Document call;
  call.query = inputs.query;
  call.key = inputs.key;
  call.value = inputs.value;
  call.options = inputs.options;
  call.tensors = std::move(inputs.tensors);
  // Token counts need these axes. For other ranks, attention() throws the best message.
  for (const TensorView& view : {call.query, call.key, call.value})
    if (view.rank() < 2 || view.rank() > 4 || view.rank() != call.query.rank())
      (void)attention(call.query, call.key, call.value, call.options);
  std::vector<std::string>& query_tokens = call.report.query_tokens;
  std::vector<std::string>& key_tokens = call.report.key_tokens;
  if (!arguments.tokens.empty())
    query_tokens = read_tokens("--tokens", arguments.tokens, call.query.size(-2), "queries");
  if (!arguments.key_tokens.empty())
    key_tokens = read_tokens("--key-tokens", arguments.key_tokens, call.key.size(-2), "keys");
  if (key_tokens.empty() && call.query.size(-2) == call.key.size(-2)) key_tokens = query_tokens;
  return call;
}

bool is_summary(const LookArguments& arguments) {
  return arguments.rows.empty() && !arguments.tile && arguments.evict.empty();
}

// The rows to compute alone. Empty if there are so many that computing all rows takes no longer: in blocks, a
// row costs a fraction of a single one.
std::vector<std::int64_t> rows_asked_for(const LookArguments& arguments, const Document& document) {
  constexpr std::int64_t kShare = 16;
  const std::int64_t queries = document.query.size(-2);
  std::vector<std::int64_t> rows = arguments.rows;
  std::sort(rows.begin(), rows.end());
  if (arguments.tile)
    for (std::int64_t i = arguments.tile->row_begin; i < arguments.tile->row_end; ++i) rows.push_back(i);
  if (!arguments.evict.empty() && queries > 0)
    rows.push_back(0);  // eviction needs no single row, but an empty list would mean all
  if (arguments.evict.empty() && static_cast<std::int64_t>(rows.size()) > queries / kShare) rows.clear();
  return rows;
}

MapSize saved_map(const Document& document) {
  const auto maps = static_cast<double>(axis_size(document, 4) * axis_size(document, 3));
  std::int64_t side = kSavedMap;
  while (side > 64 && maps * static_cast<double>(side * side) * 8 > kMostMapBytes) side /= 2;
  return {side, side};
}

// Questions about single rows need neither `received` nor a map; a saved file contains both.
ReportOptions report_options(const LookArguments& arguments, const Document& document) {
  ReportOptions wanted;
  const bool whole = is_summary(arguments) || !arguments.save.empty();
  wanted.top_k = arguments.top_k;
  wanted.received = arguments.received && whole;
  const bool is_drawn = !arguments.html.empty() || !arguments.png.empty() || arguments.serve;
  wanted.map = !arguments.save.empty() || is_drawn ? saved_map(document) : arguments.map;
  wanted.cost = is_summary(arguments) && (arguments.model.empty() || arguments.price) && !arguments.attend;
  wanted.attend = arguments.attend;
  if (!whole) wanted.rows = rows_asked_for(arguments, document);
  return wanted;
}

void look_at(Document& document, const LookArguments& arguments) {
  if (!document.has_report) {
    ProgressBar bar;
    ReportOptions wanted = report_options(arguments, document);
    wanted.progress = [&](std::string_view what, double share) { bar.show(what, share); };
    fill_report(document, std::move(wanted));
  }
  if (!arguments.save.empty()) save_document(arguments.save, document);
}

std::vector<Eviction> evict_from(const Document& document, const LookArguments& arguments) {
  ProgressBar bar;
  return evictions_of(document, arguments,
                      [&](std::string_view policy, double share) { bar.show(policy, share); });
}

void answer_with_rows(const TextOutput& output, const Document& document, const LookArguments& arguments) {
  const std::vector<AttendedRow> rows = answer_rows(document, arguments);
  if (!arguments.csv.empty()) io::write_text(arguments.csv, rows_csv(document, rows));
  if (!arguments.npy.empty()) io::write_npy(arguments.npy, weights_of_rows(document, arguments));
  if (!arguments.json) return print_rows(output, document, rows);
  Json object = call_json(document);
  object["rows"] = rows_json(document, rows);
  output.stream << object.dump() << '\n';
}

void answer_with_tile(const TextOutput& output, const Document& document, const LookArguments& arguments) {
  const WeightTile tile = answer_tile(document, arguments);
  if (!arguments.csv.empty()) io::write_text(arguments.csv, tile_csv(tile, arguments.heads));
  if (!arguments.npy.empty()) io::write_npy(arguments.npy, tile.weights);
  if (!arguments.json) return print_tile(output, document, tile, arguments.heads);
  Json object = call_json(document);
  object["rows"] = {tile.range.row_begin, tile.range.row_end};
  object["keys"] = {tile.range.key_begin, tile.range.key_end};
  object["weights"] = values_json(tile.weights);
  object["allowed"] = values_json(tile.allowed);
  output.stream << object.dump() << '\n';
}

void answer_with_evictions(const TextOutput& output, const Document& document,
                           const std::vector<Eviction>& evictions, const LookArguments& arguments) {
  if (!arguments.csv.empty()) io::write_text(arguments.csv, evictions_csv(document, evictions, arguments));
  if (arguments.json) {
    Json object = call_json(document);
    object["evictions"] = evictions_json(evictions, arguments);
    output.stream << object.dump() << '\n';
  } else {
    print_call(output, document);
    print_evictions(output, document, evictions, arguments);
  }
}

Json masks_json(const Document& document, const std::vector<HeadSummary>& heads) {
  Json list = Json::array();
  for (const HeadSummary& head : heads) {
    if (document.report.queries == 0 || document.report.keys == 0) break;
    const MapSize bins{std::min<std::int64_t>(64, document.report.queries),
                       std::min<std::int64_t>(64, document.report.keys)};
    const MaskPicture picture =
        mask_picture(document.query, document.key, document.options, head.batch, head.head, bins);
    list.push_back({{"batch", head.batch},
                    {"head", head.head},
                    {"allowed_share", picture.allowed_share},
                    {"tile_share", picture.tile_share},
                    {"allowed", values_json(picture.allowed)}});
  }
  return list;
}

// Below a millisecond, thread start-up dominates the times.
bool says_cost(const LookArguments& arguments, const std::vector<CostLine>& cost) {
  return !cost.empty() && (arguments.price || cost.front().seconds >= kCostWorthSaying);
}

std::optional<DocumentCheck> check_of(const Document& document, const LookArguments& arguments) {
  if (!arguments.check && !arguments.proof) return std::nullopt;
  return check_document(document, arguments.check.value_or(kRowsToCheck), arguments.batch.value_or(-1),
                        only_head(arguments));
}

Json most_received_json(const Document& document, const std::vector<HeadSummary>& heads) {
  Json list = Json::array();
  for (const ReceivedKey& one : most_received(document, heads))
    list.push_back({{"key", one.key},
                    {"token", document.report.key_tokens[static_cast<std::size_t>(one.key)]},
                    {"weight", one.weight}});
  return list;
}

void print_summary(const TextOutput& output, const LookedAt& found, const std::vector<HeadSummary>& heads,
                   const LookArguments& arguments) {
  const Document& document = found.document;
  print_call(output, document);
  if (arguments.by == WeighedBy::norm)
    output.stream << "each weight is a share of what its row moves: weight times norm of the moved value\n";
  if (arguments.find || !found.retrieval.empty())
    print_ranking(output, document, heads, arguments, found.retrieval);
  else
    print_heads(output, document, heads, !arguments.brief && heads.size() <= kMostWithKeys);
  if (!arguments.model.empty())
    print_most_received(output, document, most_received(document, heads), heads.size());
}

void answer_with_summary(const TextOutput& output, const LookedAt& found, const LookArguments& arguments,
                         const std::optional<DocumentCheck>& check) {
  const Document& document = found.document;
  const std::vector<HeadSummary> heads = ranked_heads(document, arguments, found.retrieval);
  const Tensor map = arguments.map.rows > 0 ? attention_map(document, arguments.map) : Tensor();
  if (!arguments.csv.empty()) io::write_text(arguments.csv, heads_csv(document, heads));
  if (arguments.json) {
    Json object = call_json(document);
    object["summary"] = heads_json(document, heads);
    if (!found.retrieval.empty()) add_retrieval(heads, found.retrieval, object["summary"]);
    if (!arguments.model.empty()) object["received"] = most_received_json(document, heads);
    if (map.rank() == 4) object["map"] = values_json(map);
    if (arguments.draw_mask) object["masks"] = masks_json(document, heads);
    if (check) {
      object["checks"] = checks_json(*check);
      object["checked"] = {{"rows", check->rows},
                           {"nan_rows", check->nan_rows},
                           {"lost_rows", check->lost_rows},
                           {"keys", check->keys},
                           {"bins", check->bins}};
    }
    if (!document.report.cost.empty()) object["cost"] = cost_json(document.report.cost);
    output.stream << object.dump() << '\n';
  } else {
    print_summary(output, found, heads, arguments);
    if (map.rank() == 4) print_map(output, document, map, heads);
    if (arguments.draw_mask) print_masks(output, document, heads);
    if (check) print_check(output, document, *check);
    if (says_cost(arguments, document.report.cost)) print_cost(output, document.report.cost);
  }
}

std::string picture_title(const LookArguments& arguments) {
  if (!arguments.model.empty())
    return arguments.model + ": " + (arguments.texts.empty() ? arguments.text : arguments.texts.front());
  return std::filesystem::path(arguments.document.empty() ? arguments.call.query : arguments.document)
      .filename()
      .string();
}

void answer(const CLI::App& app, LookArguments arguments, LookedAt& found) {
  Document& document = found.document;
  arguments.heads = heads_named(document, arguments.layer, arguments.head_names);
  const bool rows_were_longer = choose_rows(document, arguments);
  const bool was_longer = cut_tile(document, arguments);
  check_question(document, arguments);
  const std::vector<Eviction> evictions = evict_from(document, arguments);
  look_at(document, arguments);
  if (found.retrieval.empty() && !arguments.needle_spans.empty())
    found.retrieval = retrieval_of(document, arguments.needle_spans);
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  const TextOutput output{std::cout, terminal.color, std::max(kLeastLookWidth, terminal.width)};
  if (arguments.tile) {
    answer_with_tile(output, document, arguments);
    if (was_longer && !arguments.json)
      output.stream << "\n--tile ends where the tensors end: there are " << document.report.queries
                    << " queries and " << document.report.keys << " keys\n";
    return;
  }
  if (!arguments.rows.empty()) {
    answer_with_rows(output, document, arguments);
    if (rows_were_longer && !arguments.json)
      output.stream << "\n--row ends where the tensors end: there are " << document.report.queries
                    << " queries\n";
    return;
  }
  if (!evictions.empty()) return answer_with_evictions(output, document, evictions, arguments);
  const std::optional<DocumentCheck> check = check_of(document, arguments);
  const bool on_page = !arguments.html.empty() || arguments.serve;
  const HtmlPage page =
      on_page ? look_page(document, arguments, question_command(app, arguments), check) : HtmlPage();
  if (!arguments.html.empty()) write_html(arguments.html, page);
  if (!arguments.png.empty())
    write_look_picture(arguments.png, document, heads_of(document, arguments), picture_title(arguments));
  answer_with_summary(output, found, arguments, check);
  if (!arguments.png.empty() && !arguments.json)
    std::cout << "\nDrew the heads, " << printable(arguments.png) << ".\n";
  if (!arguments.html.empty() && !arguments.json)
    std::cout << "\nDrew the heads on a page, " << printable(arguments.html) << ": open it in a browser.\n";
  if (arguments.serve) serve_document(std::cout, document, page, arguments.port);
  if (check) require_that_it_holds(*check, arguments.check ? "--check" : "--proof");
}

// Whether the answer needs the queries and keys of all layers, and not only the table of heads.
bool needs_call(const LookArguments& arguments) {
  const bool is_written = !arguments.save.empty() || !arguments.html.empty() || !arguments.png.empty();
  return is_written || arguments.serve || !is_summary(arguments) || arguments.row || arguments.word ||
         arguments.map.rows > 0 || arguments.draw_mask || arguments.check || arguments.proof ||
         arguments.price;
}

std::optional<std::int64_t> layer_of(const heed::Model& model, const LookArguments& arguments) {
  if (!arguments.layer) return std::nullopt;
  std::vector<LayerHeads> layers;
  for (std::int64_t n = 0; n < model.info().layers; ++n)
    layers.push_back({std::to_string(n), model.info().heads});
  return heads_of_layer(layers, *arguments.layer).begin / model.info().heads;
}

// The table of heads, computed while the model runs. Nothing else of a layer is kept.
LookedAt table_of(const heed::Model& model, const ModelTokens& text, const LookArguments& arguments) {
  ProgressBar bar;
  TextLookOptions options;
  options.report.received = arguments.received;
  options.report.progress = [&](std::string_view what, double share) { bar.show(what, share); };
  options.by = arguments.by;
  options.layer = layer_of(model, arguments);
  options.keep_rows = false;
  options.needle = arguments.needle_spans;
  options.threads = arguments.call.options.threads;
  TextLook look = look_at_text(model, text, options);
  LookedAt found;
  found.document.report = std::move(look.report);
  found.document.has_report = true;
  found.retrieval = std::move(look.retrieval);
  return found;
}

// Merges the summaries of all texts; the call comes from the first text.
void look_at_texts(const heed::Model& model, LookArguments arguments) {
  std::vector<std::vector<HeadSummary>> summaries;
  Document first;
  std::int64_t tokens = 0;
  const auto read = [&](const std::string& text, const std::string& source) {
    Document document = table_of(model, read_tokens_of(model, text, source), arguments).document;
    tokens += document.report.queries;
    summaries.push_back(document.report.summaries);
    if (summaries.size() == 1) first = std::move(document);
  };
  if (!arguments.text.empty()) read(arguments.text, "WORDS");
  for (const std::string& path : arguments.texts) read(file_text(path), path);
  first.report.summaries = merge_summaries(summaries);
  first.report.received = {};
  arguments.heads = heads_named(first, arguments.layer, arguments.head_names);
  const std::vector<HeadSummary> heads = ranked_heads(first, arguments, {});
  if (!arguments.csv.empty()) io::write_text(arguments.csv, heads_csv(first, heads));
  if (arguments.json) {
    std::cout << Json(
                     {{"texts", summaries.size()}, {"tokens", tokens}, {"summary", heads_json(first, heads)}})
                     .dump()
              << '\n';
    return;
  }
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  const TextOutput output{std::cout, terminal.color, std::max(kLeastLookWidth, terminal.width)};
  output.stream << first.report.heads << " heads over " << summaries.size()
                << (summaries.size() == 1 ? " text of " : " texts of ") << tokens << " tokens in total\n";
  if (arguments.find)
    print_ranking(output, first, heads, arguments, {});
  else
    print_heads(output, first, heads, !arguments.brief && heads.size() <= kMostWithKeys);
}

void look_at_model(const CLI::App& app, LookArguments arguments) {
  const heed::Model model = read_model(arguments.model);
  if (arguments.texts.size() + (arguments.text.empty() ? 0 : 1) > 1) return look_at_texts(model, arguments);
  const bool from_file = !arguments.texts.empty();
  const std::string text = from_file ? file_text(arguments.texts.front()) : arguments.text;
  const ModelTokens tokens = read_tokens_of(model, text, from_file ? arguments.texts.front() : "WORDS");
  if (!arguments.needle.empty()) arguments.needle_spans = spans_of(text, tokens, arguments.needle);
  if (!arguments.needle.empty() && arguments.needle_spans.empty())
    throw UsageError("--needle is '" + arguments.needle +
                     "', which is not in the text; words of the text are expected");
  LookedAt found;
  if (needs_call(arguments))
    found.document = document_of_text(
        model, tokens,
        {.by = arguments.by, .layer = layer_of(model, arguments), .threads = arguments.call.options.threads});
  else
    found = table_of(model, tokens, arguments);
  answer(app, arguments, found);
}

void look(const CLI::App& app, LookArguments& arguments) {
  check_outputs(input_files(arguments), output_files(arguments));
  if (arguments.json) require_standard_output();
  if (arguments.cause) return answer_cause(arguments);
  if (!arguments.model.empty()) return look_at_model(app, arguments);
  if (is_folder(arguments.document)) {
    const Terminal terminal = terminal_at(STDOUT_FILENO);
    return look_at_run({std::cout, terminal.color, std::max(kLeastLookWidth, terminal.width)}, arguments);
  }
  LookedAt found{arguments.document.empty() ? read_call(arguments) : open_document(arguments.document)};
  answer(app, arguments, found);
}

}  // namespace

Command add_look_with(CLI::App& heed, LookRunner run) {
  CLI::App* app = add_command(heed, "look", kLookDescription);
  const auto arguments = std::make_shared<LookArguments>();
  add_look_options(*app, *arguments);
  finish_help(*app,
              {"--query TENSOR --key TENSOR --value TENSOR [options]", "DOC [options]",
               "--model DIR (WORDS | --text FILE) [options]"},
              kLookExamples);
  return {app, [app, run = std::move(run), arguments] {
            complete_look_arguments(*app, *arguments);
            run(*app, *arguments, [&] { look(*app, *arguments); });
          }};
}

Command add_look(CLI::App& heed) {
  return add_look_with(heed, [](const CLI::App& app, LookArguments&, const std::function<void()>& work) {
    refuse_rank_options_alone(app);
    work();
  });
}

}  // namespace heed::cli
