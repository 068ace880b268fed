#include "heed/model/examples.hpp"

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "heads/questions.hpp"
#include "heed/model/why.hpp"
#include "json.hpp"
#include "looked_at.hpp"
#include "progress.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kWordsAround = 3;  // shown before and after the two of an example
constexpr std::int64_t kCharactersAround = 12;
constexpr const char* kContinues = "·";  // before a piece that continues a word (Tokenizer::shown())

// The texts of a file, and the number of each one's line.
struct Lines {
  std::vector<ModelTokens> texts;
  std::vector<std::size_t> numbers;
};

Lines lines_of(const heed::Model& model, const std::string& path) {
  Lines lines;
  std::size_t number = 0;
  for (std::string line : split(file_text(path), '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    lines.texts.push_back(read_tokens_of(model, line, "line " + std::to_string(number) + " of " + path));
    lines.numbers.push_back(number);
  }
  if (lines.texts.empty()) refuse_usage("--lines is '", path, "', which has no text; one a line is expected");
  return lines;
}

// The words of an example: what it looks from in brackets, what it looks to in angles.
std::string marked_text(const ModelTokens& text, const HeadExample& example) {
  const auto count = std::ssize(text.shown);
  const bool words =
      std::ranges::any_of(text.shown, [](const std::string& token) { return characters(token).size() > 1; });
  const std::int64_t around = words ? kWordsAround : kCharactersAround;
  const auto [low, high] = std::minmax(example.row, example.key);
  std::string made;
  for (std::int64_t at = std::max<std::int64_t>(low - around, 0); at < std::min(high + around + 1, count);
       ++at) {
    if (at == low + around + 1 && high - low > 2 * around + 2) {
      made += words ? " …" : "…";
      at = high - around;
    }
    std::string word = text.shown[static_cast<std::size_t>(at)];
    const bool continues = words && word.starts_with(kContinues) && word.size() > 2;
    word = printable(continues ? word.substr(2) : word);
    if (at == example.key) word = "«" + word + "»";
    if (at == example.row) word = "[" + word + "]";
    made += (made.empty() || continues || !words ? "" : " ") + word;
  }
  return made;
}

Json habits_json(const std::vector<HeadHabit>& habits, const char* name,
                 const std::function<Json(std::int64_t)>& shown) {
  Json list = Json::array();
  for (const HeadHabit& one : habits) {
    list.push_back({{name, shown(one.what)}, {"rows", one.rows}, {"moved", one.moved}});
    if (one.usual > 0) list.back()["usual"] = one.usual;
  }
  return list;
}

class ExamplesAnswer {
 public:
  ExamplesAnswer(const heed::Model& model, const Lines& lines, std::vector<HeadExamples> heads)
      : model_(model), lines_(lines), texts_(lines.texts), heads_(std::move(heads)) {}

  void print_json() const {
    Json json = {{"texts", texts_.size()}, {"heads", Json::array()}};
    for (const HeadExamples& head : heads_) {
      const auto token = [this](std::int64_t id) { return Json(word_of(id)); };
      Json one = {{"head", to_string(head.head)},
                  {"looks_like", head.summary.name()},
                  {"mean", head.mean},
                  {"examples", Json::array()}};
      for (const HeadExample& example : head.best)
        one["examples"].push_back({{"line", lines_.numbers[static_cast<std::size_t>(example.text)]},
                                   {"row", example.row},
                                   {"key", example.key},
                                   {"weight", example.weight},
                                   {"moved", example.moved},
                                   {"words", marked(example)}});
      one["rows"] = habits_json(head.rows, "token", token);
      one["keys"] = habits_json(head.keys, "token", token);
      one["distances"] = habits_json(head.distances, "distance", [](std::int64_t far) { return Json(far); });
      json["heads"].push_back(std::move(one));
    }
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }

  void print_head(const TextOutput& output) const {
    const HeadExamples& head = heads_.front();
    output.stream << bold("head " + to_string(head.head) + " (" + head.summary.name() +
                              ") takes most where it looks from [here] to «there» (" +
                              counted(std::ssize(texts_), "text") + ")",
                          output.color)
                  << '\n'
                  << bold("   moved  weight", output.color) << '\n';
    for (const HeadExample& one : head.best) print_line(output, "", one);
    print_habits(output, "from", head.rows);
    print_habits(output, "to", head.keys);
    if (head.distances.empty()) return;
    output.stream << "\nhow far: ";
    for (const HeadHabit& one : head.distances)
      output.stream << (&one == head.distances.data() ? "" : ", ") << distance_text(one.what) << " ("
                    << percent(one.moved) << ")";
    output.stream << '\n';
  }

  void print_all(const TextOutput& output) const {
    output.stream << bold("The best example of each head: it looks from [here] to «there»", output.color)
                  << '\n'
                  << bold("head  looks like            moved  weight", output.color) << '\n';
    for (const HeadExamples& head : heads_)
      if (!head.best.empty())
        print_line(output, left_aligned(to_string(head.head), 6) + left_aligned(head.summary.name(), 18),
                   head.best.front());
  }

 private:
  [[nodiscard]] static std::string percent(double share) { return fixed(100 * share, 1) + " %"; }
  [[nodiscard]] std::string marked(const HeadExample& one) const {
    return marked_text(texts_[static_cast<std::size_t>(one.text)], one);
  }
  [[nodiscard]] static std::string distance_text(std::int64_t back) {
    return back == 0  ? "itself"
           : back > 0 ? std::to_string(back) + " back"
                      : std::to_string(-back) + " ahead";
  }
  // A token as the text that has it shows it.
  [[nodiscard]] std::string word_of(std::int64_t id) const {
    for (const ModelTokens& text : texts_)
      for (std::size_t i = 0; i < text.ids.size(); ++i)
        if (text.ids[i] == id) return text.shown[i];
    return model_.text_of(id, texts_.front());
  }

  void print_line(const TextOutput& output, const std::string& head, const HeadExample& one) const {
    const std::string numbers =
        head + right_aligned(fixed(one.moved, 3), 8) + right_aligned(fixed(one.weight, 3), 8);
    output.stream << numbers << "  " << shortened(marked(one), output.width - display_width(numbers) - 2)
                  << '\n';
  }

  void print_habits(const TextOutput& output, const char* side, const std::vector<HeadHabit>& habits) const {
    std::string told;
    for (const HeadHabit& one : habits)
      if (one.moved > one.usual)
        told += (told.empty() ? "" : ", ") + token_text(word_of(one.what)) + " (" + percent(one.moved) +
                " of what it moves, " + percent(one.usual) + " of the tokens)";
    if (!told.empty()) output.stream << "\nlooks " << side << ": " << told;
  }

  const heed::Model& model_;
  const Lines& lines_;
  const std::vector<ModelTokens>& texts_;
  std::vector<HeadExamples> heads_;
};

}  // namespace

void answer_examples(const heed::Model& model, const HeadsArguments& arguments,
                     const std::optional<ModelHead>& head) {
  const Lines lines = lines_of(model, arguments.lines);
  ExampleOptions options;
  options.head = head;
  options.best = arguments.top;
  ProgressBar bar;
  options.progress = [&](double share) { bar.show("texts", share); };
  std::vector<HeadExamples> heads = examples_of_heads(model, lines.texts, options);
  bar.clear();
  const ExamplesAnswer answer(model, lines, std::move(heads));
  if (arguments.json) return answer.print_json();
  if (head) return answer.print_head(standard_output());
  answer.print_all(standard_output());
}

}  // namespace heed::cli
