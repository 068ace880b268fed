// heed why: what wrote the query and the key of one weight.
#include "heed/model/why.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "given_tokens.hpp"
#include "help.hpp"
#include "json.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr const char* kWhyDescription =
    "say why a head looks from one word to another\n"
    "\n"
    "Splits the score of two words into a table: what wrote the query of the first, times what wrote the key "
    "of the second. Writers are the embedding, earlier heads, earlier MLPs and biases. The norms' scales are "
    "held. The table sums to the score.";

constexpr const char* kWhyExamples =
    "Words: 'it' is every 'it' of the text, 'it:2' the second one,\n"
    "       '#7' the token at place 7 (counted from 0). Of several places,\n"
    "       the pair with the largest weight is taken.\n"
    "\n"
    "Examples:\n"
    "  heed why be:2 or:1 --model induction to be or not to be or\n"
    "  heed why be:2 or:1 --than be:1 --model induction to be or not to be or\n"
    "  heed why it animal --head 13.8 --model model.gguf \\\n"
    "      'The animal did not cross because it was tired'\n";

constexpr int kPartColumns = 32;
constexpr int kShareColumns = 10;

struct WhyArguments {
  ModelText text;
  std::string row, key, than, head, against;
  std::int64_t top = 10;
  bool json = false;
};

// A text, and what is answered about it.
struct Asked {
  ModelTokens tokens;
  WhyAnswer answer;
};

// The places of a word, few enough for the library.
std::vector<std::int64_t> few_places(const char* name, const std::string& word, const ModelTokens& tokens) {
  constexpr std::size_t kMost = 32;
  std::vector<std::int64_t> places = word_places(name, word, tokens.shown, std::ssize(tokens.ids));
  if (places.size() > kMost)
    refuse_usage(name, " is '", word, "', which is ", counted(places.size(), "token"), "; at most ", kMost,
                 " are expected (one is ", word, ":2)");
  return places;
}

Asked ask(const heed::Model& model, ModelTokens tokens, const WhyArguments& arguments,
          const std::optional<ModelHead>& head) {
  WhyQuestion question{few_places("ROW", arguments.row, tokens), few_places("KEY", arguments.key, tokens)};
  if (!arguments.than.empty()) question.than = few_places("--than", arguments.than, tokens);
  question.head = head;
  const auto count = std::ssize(tokens.ids);
  WhyAnswer answer = why(model, TensorView(tokens.ids.data(), {count}), question);
  if (answer.than && answer.than->key == answer.split.key)
    refuse_usage("--than is '", arguments.than, "', the same token as KEY; another word is expected");
  return {std::move(tokens), std::move(answer)};
}

class WhyPrinter {
 public:
  WhyPrinter(const TextOutput& output, const Asked& asked, std::int64_t top)
      : output_(output), asked_(asked), top_(top) {}

  // `split` is the score that is asked about, or its difference from another one, which `beside` names.
  void print(const ScoreSplit& split, const std::string& beside) const {
    std::ostream& out = output_.stream;
    const ScoreSplit& own = asked_.answer.split;
    out << bold("head " + to_string(own.head) + " looks from " + word(own.row) + " to " + word(own.key) +
                    " with weight " + fixed(own.weight, 3),
                output_.color)
        << "\nscore " << fixed(own.score, 3);
    if (std::abs(own.biased - own.score) > 1e-4 * std::max(1.0, std::abs(own.score)))
      out << ", " << fixed(own.biased, 3) << " after softcap and bias";
    if (!beside.empty()) out << "; " << beside << ": " << signed_fixed(split.score, 3);
    const double sign = split.score < 0 ? -1 : 1;
    out << "\nbecause " << largest_text(split.key_parts, key_shares(split), sign, "there") << " and "
        << largest_text(split.query_parts, query_shares(split), sign, "here") << "\n\n";
    print_pairs(split);
    out << '\n';
    print_sides(split);
  }

 private:
  [[nodiscard]] std::string word(std::int64_t place) const {
    return word_with_place(asked_.tokens.shown, place);
  }

  // "4.2, which read animal (1)".
  [[nodiscard]] std::string part_text(const StreamPart& part) const {
    if (part.kind != StreamPart::Kind::head || part.from < 0) return to_string(part);
    return to_string(part) + ", which read " + word(part.from);
  }

  // Names the part with the largest share in the score's sign, what it read, and the share.
  [[nodiscard]] std::string largest_text(const std::vector<StreamPart>& parts,
                                         const std::vector<double>& shares, double sign,
                                         const std::string& where) const {
    const auto at =
        std::ranges::max_element(shares, [&](double a, double b) { return sign * a < sign * b; }) -
        shares.begin();
    const StreamPart& part = parts[static_cast<std::size_t>(at)];
    std::string text = "of the " + to_string(part) + " " + where;
    if (part.kind == StreamPart::Kind::mlp) text = "of what " + to_string(part) + " wrote " + where;
    if (part.kind == StreamPart::Kind::head)
      text = "of what " + to_string(part) + " wrote " + where +
             (part.from < 0 ? "" : " from " + word(part.from));
    return text + " (" + signed_fixed(shares[static_cast<std::size_t>(at)], 3) + ")";
  }

  void line(const std::vector<std::string>& cells, const std::vector<int>& widths,
            bool heading = false) const {
    const std::string text = "  " + line_of(cells, widths);
    output_.stream << (heading ? bold(text, output_.color) : text) << '\n';
  }

  // "0.3 wrote there from be (1)".
  [[nodiscard]] std::string act_text(const StreamPart& part, const std::string& where) const {
    switch (part.kind) {
      case StreamPart::Kind::head:
        return to_string(part) + " wrote " + where + (part.from < 0 ? "" : " from " + word(part.from));
      case StreamPart::Kind::mlp:
        return to_string(part) + " wrote " + where;
      case StreamPart::Kind::biases:
        return "the biases count " + where;
      default:
        return "the " + to_string(part) + " stands " + where;
    }
  }

  // A sentence for each pair of writers. A share of the score's sign is a cause of it.
  void print_pairs(const ScoreSplit& split) const {
    output_.stream << bold("  " + right_aligned("score", kShareColumns) + "   there is " + word(split.key) +
                               ", here " + word(split.row),
                           output_.color)
                   << '\n';
    double rest = split.score;
    const std::vector<PartPair> pairs = largest_pairs(split, top_);
    for (const PartPair& pair : pairs) {
      rest -= pair.share;
      print_pair(pair.share, (pair.share * split.score < 0 ? "although " : "because ") +
                                 act_text(split.key_parts[static_cast<std::size_t>(pair.key)], "there") +
                                 " and " +
                                 act_text(split.query_parts[static_cast<std::size_t>(pair.query)], "here"));
    }
    const std::int64_t others = split.table.count() - std::ssize(pairs);
    if (others > 0) print_pair(rest, "by the " + std::to_string(others) + " other pairs");
  }
  void print_pair(double share, const std::string& reason) const {
    output_.stream << "  " << right_aligned(signed_fixed(share, 3), kShareColumns) << "   " << reason << '\n';
  }

  // The largest sums of rows and of columns, side by side.
  void print_sides(const ScoreSplit& split) const {
    const std::vector<int> widths = {kShareColumns, 3, -kPartColumns, kShareColumns, 3, -kPartColumns};
    const auto queries = largest(query_shares(split)), keys = largest(key_shares(split));
    line({"share", "", "of the query, with the whole key", "share", "", "of the key, with the whole query"},
         widths, true);
    for (std::size_t i = 0; i < std::max(queries.size(), keys.size()); ++i) {
      const auto cells = [&](const auto& shares, const std::vector<StreamPart>& parts) {
        if (i >= shares.size()) return std::pair<std::string, std::string>();
        return std::pair(signed_fixed(shares[i].second, 3), part_text(parts[shares[i].first]));
      };
      const auto [query, query_part] = cells(queries, split.query_parts);
      const auto [key, key_part] = cells(keys, split.key_parts);
      line({query, "", query_part, key, "", key_part}, widths);
    }
  }

  // Indices and shares, the largest by size first.
  [[nodiscard]] std::vector<std::pair<std::size_t, double>> largest(const std::vector<double>& shares) const {
    std::vector<std::pair<std::size_t, double>> all;
    for (std::size_t i = 0; i < shares.size(); ++i) all.emplace_back(i, shares[i]);
    std::ranges::stable_sort(all, std::ranges::greater(),
                             [](const auto& one) { return std::abs(one.second); });
    all.resize(std::min(all.size(), static_cast<std::size_t>(std::min<std::int64_t>(top_, 5))));
    return all;
  }

  const TextOutput& output_;
  const Asked& asked_;
  std::int64_t top_;
};

Json parts_json(const std::vector<StreamPart>& parts, const std::vector<double>& shares) {
  Json list = Json::array();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    list.push_back({{"part", to_string(parts[i])}, {"share", shares[i]}});
    if (parts[i].from >= 0) list.back().update({{"read", parts[i].from}, {"weight", parts[i].from_weight}});
  }
  return list;
}

Json split_json(const ScoreSplit& split, std::int64_t top) {
  Json json = {{"head", to_string(split.head)}, {"row", split.row},     {"key", split.key},
               {"weight", split.weight},        {"score", split.score}, {"biased", split.biased}};
  json["pairs"] = Json::array();
  for (const PartPair& pair : largest_pairs(split, top))
    json["pairs"].push_back({{"query", to_string(split.query_parts[static_cast<std::size_t>(pair.query)])},
                             {"key", to_string(split.key_parts[static_cast<std::size_t>(pair.key)])},
                             {"share", pair.share}});
  json["query_parts"] = parts_json(split.query_parts, query_shares(split));
  json["key_parts"] = parts_json(split.key_parts, key_shares(split));
  return json;
}

void check_arguments(const CLI::App& app, const WhyArguments& arguments) {
  require_option(app, "ROW", "the word that attends");
  require_option(app, "KEY", "the word that is attended to");
  check_model_text(app, arguments.text);
  if (!arguments.than.empty() && !arguments.against.empty())
    refuse_usage("--than is given together with --against; one comparison is expected");
}

void run_why(const CLI::App& app, const WhyArguments& arguments) {
  check_arguments(app, arguments);
  std::optional<ModelHead> head;
  if (!arguments.head.empty()) head = head_named("--head", arguments.head);
  if (arguments.json) require_standard_output();
  const std::string against = other_text("--against", arguments.against, joined_words(arguments.text.words));
  const heed::Model model = read_model(arguments.text.model, arguments.text.given.fast);
  if (head) check_head("--head", *head, model.info());
  const Asked asked = ask(model, read_model_text(model, arguments.text), arguments, head);
  std::optional<Asked> other;
  if (given(app, "--against"))
    other = ask(model, read_tokens_of(model, against, "--against"), arguments, asked.answer.split.head);
  const ScoreSplit& own = asked.answer.split;
  const ScoreSplit* less = other ? &other->answer.split : asked.answer.than ? &*asked.answer.than : nullptr;
  const ScoreSplit shown = less == nullptr ? own : difference(own, *less);
  if (arguments.json) {
    Json json = {{"tokens", asked.tokens.shown}};
    json.update(split_json(own, arguments.top));
    if (other) json["against"] = split_json(*less, arguments.top);
    if (asked.answer.than) json["than"] = split_json(*less, arguments.top);
    if (less != nullptr) json["difference"] = split_json(shown, arguments.top);
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    return;
  }
  std::string beside;
  if (less != nullptr)
    beside = (other ? "more than in the text of --against (" : "more than for ") +
             (other ? fixed(less->score, 3) + ")"
                    : word_with_place(asked.tokens.shown, less->key) + " (" + fixed(less->score, 3) + ")");
  WhyPrinter(standard_output(), asked, arguments.top).print(shown, beside);
}

}  // namespace

Command add_why(CLI::App& heed) {
  CLI::App* app = add_command(heed, "why", kWhyDescription);
  const auto arguments = std::make_shared<WhyArguments>();
  add_argument(*app, "ROW", arguments->row, "the word that attends");
  add_argument(*app, "KEY", arguments->key, "the word that is attended to");
  add_model_text(*app, arguments->text);
  begin_group(*app, "Question");
  add_text(*app, "--head", "L.H", arguments->head,
           "the head, such as 1.3 (layer 1, head 3; default: the one with the largest weight)");
  add_text(*app, "--than", "KEY", arguments->than,
           "show why the row looks at KEY and not at this other word");
  add_text(*app, "--against", "TEXT", arguments->against,
           "show what is different in this other text, for example with one word exchanged; - reads standard "
           "input");
  begin_group(*app, "Results");
  add_integer(*app, "--top", {1}, arguments->top, "list N pairs of writers (default 10)");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead, with the shares of all writers");
  finish_help(*app, {"ROW KEY --model DIR WORDS [options]"}, kWhyExamples);
  return {app, [app, arguments] { run_why(*app, *arguments); }};
}

}  // namespace heed::cli
