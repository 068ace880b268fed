#include "heed/model/examples.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/message.hpp"
#include "heed/model/look.hpp"
#include "model/look_support.hpp"

namespace heed {
namespace {

constexpr std::int64_t kMost = 1000;

// The rows with one token or one distance, and how much a head moves there.
struct Moved {
  std::int64_t rows = 0;
  double sum = 0;
};
using MovedBy = std::map<std::int64_t, Moved>;

// A head's results after some texts.
struct Known {
  HeadExamples made;
  double sum = 0;
  std::int64_t rows_seen = 0;
  MovedBy rows{}, keys{}, distances{};
};

bool moves_more(const HeadExample& a, const HeadExample& b) { return a.moved > b.moved; }

std::vector<HeadHabit> habits_of(const MovedBy& by, double sum, std::int64_t count,
                                 const std::function<double(std::int64_t)>& usual) {
  std::vector<HeadHabit> all;
  for (const auto& [what, moved] : by)
    all.push_back({what, moved.rows, sum > 0 ? moved.sum / sum : 0, usual(what)});
  std::ranges::stable_sort(all, std::ranges::greater(),
                           [](const HeadHabit& one) { return one.moved - one.usual; });
  all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
  return all;
}

// A row that sees one key alone gives it all of its weight.
bool has_choice(const AttentionReport& report, std::int64_t row) {
  return report.key_end.at<std::int64_t>(0, row) - report.key_begin.at<std::int64_t>(0, row) > 1;
}

class Collector {
 public:
  Collector(const Model& model, const ExampleOptions& options) : model_(model), options_(options) {
    const ModelInfo& info = model.info();
    if (options.head) {
      first_ = static_cast<std::size_t>(options.head->head);
      known_.push_back({{*options.head}});
      return;
    }
    for (std::int64_t layer = 0; layer < info.layers; ++layer)
      for (std::int64_t head = 0; head < info.heads; ++head) known_.push_back({{ModelHead{layer, head}}});
  }

  void add(std::int64_t index, const ModelTokens& text) {
    TextLookOptions wanted;
    wanted.report.top_k = 1;
    wanted.report.received = false;
    wanted.by = WeighedBy::norm;
    wanted.threads = options_.threads;
    if (options_.head) wanted.layer = options_.head->layer;
    const TextLook look = look_at_text(model_, text, wanted);
    std::vector<std::vector<HeadSummary>> both = {look.report.summaries};
    if (!summaries_.empty()) both.push_back(std::move(summaries_));
    summaries_ = merge_summaries(both);
    for (const std::int64_t id : text.ids) ++tokens_[id];
    count_ += std::ssize(text.ids);
    for (std::size_t i = 0; i < known_.size(); ++i)
      add_head(index, text, look, static_cast<std::int64_t>(first_ + i), known_[i]);
  }

  std::vector<HeadExamples> made() {
    std::vector<HeadExamples> all;
    const auto usual = [this](std::int64_t token) {
      return static_cast<double>(tokens_.at(token)) / static_cast<double>(count_);
    };
    const std::int64_t habits =
        model_.info().symbols ? 0 : options_.habits;  // a symbol has no meaning of its own
    for (Known& known : known_) {
      known.made.summary = summaries_[first_ + all.size()];
      known.made.mean = known.rows_seen > 0 ? known.sum / static_cast<double>(known.rows_seen) : 0;
      known.made.rows = habits_of(known.rows, known.sum, habits, usual);
      known.made.keys = habits_of(known.keys, known.sum, habits, usual);
      known.made.distances =
          habits_of(known.distances, known.sum, options_.habits, [](std::int64_t) { return 0.0; });
      all.push_back(std::move(known.made));
    }
    return all;
  }

 private:
  // `head` is an index into the heads of the look.
  void add_head(std::int64_t index, const ModelTokens& text, const TextLook& look, std::int64_t head,
                Known& known) const {
    HeadExample best{index};
    for (std::int64_t row = 0; row < std::ssize(text.ids); ++row) {
      const auto key = look.report.top_k_index.at<std::int64_t>(0, head, row, 0);
      if (key < 0 || !has_choice(look.report, row)) continue;
      ++known.rows_seen;
      const double moved = static_cast<double>(look.report.top_k_weight.at<float>(0, head, row, 0)) *
                           static_cast<double>(look.moved.at<float>(head, row));
      known.sum += moved;
      for (auto [by, what] : {std::pair(&known.rows, text.ids[static_cast<std::size_t>(row)]),
                              std::pair(&known.keys, text.ids[static_cast<std::size_t>(key)]),
                              std::pair(&known.distances, row - key)}) {
        ++(*by)[what].rows;
        (*by)[what].sum += moved;
      }
      if (moved > best.moved)
        best = {index, row, key, moved / static_cast<double>(look.norms.at<float>(head, key)), moved};
    }
    if (!(best.moved > 0)) return;
    auto& all = known.made.best;
    all.insert(std::ranges::upper_bound(all, best, moves_more), best);
    if (std::ssize(all) > options_.best) all.pop_back();
  }

  const Model& model_;
  const ExampleOptions& options_;
  std::vector<Known> known_;
  std::size_t first_ = 0;                        // the first known head among the heads of a look
  std::map<std::int64_t, std::int64_t> tokens_;  // how often each occurs
  std::int64_t count_ = 0;                       // tokens of all texts
  std::vector<HeadSummary> summaries_;           // of all heads of the looks
};

void check(const Model& model, std::span<const ModelTokens> texts, const ExampleOptions& options) {
  if (texts.empty()) detail::refuse("texts is empty; at least one text is expected");
  detail::check_range("best", options.best, 1, kMost);
  detail::check_range("habits", options.habits, 0, kMost);
  if (options.head) detail::check_head(*options.head, model.info());
}

}  // namespace

std::vector<HeadExamples> examples_of_heads(const Model& model, std::span<const ModelTokens> texts,
                                            const ExampleOptions& options) {
  check(model, texts, options);
  Collector collector(model, options);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (options.progress) options.progress(static_cast<double>(i) / static_cast<double>(texts.size()));
    collector.add(static_cast<std::int64_t>(i), texts[i]);
  }
  if (options.progress) options.progress(1);
  return collector.made();
}

}  // namespace heed
