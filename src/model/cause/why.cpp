// Splits one score of a head. While the model runs, each layer's attention is asked for the rows in question
// once more; their weights say which head and which pair to split.
#include "heed/model/why.hpp"
#include "core/largest.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/cause/stream_parts.hpp"
#include "model/look_support.hpp"
#include "model/parts.hpp"

namespace heed {
namespace {

using detail::RowAttention;
using detail::RowTrace;
using Places = std::vector<std::int64_t>;

constexpr std::size_t kMaxPlaces = 32;

void check_places(const char* name, const Places& places, std::size_t least, std::int64_t length) {
  if (places.size() < least || places.size() > kMaxPlaces)
    detail::refuse(name, " has ", places.size(), " places; ", least, " to ", kMaxPlaces, " are expected");
  for (const std::int64_t place : places)
    if (place < 0 || place >= length)
      detail::refuse(name, " has ", place, "; 0 to ", length - 1, " is expected");
}

void check(const WhyQuestion& question, const ModelInfo& info, std::int64_t length) {
  check_places("rows", question.rows, 1, length);
  check_places("keys", question.keys, 1, length);
  check_places("than", question.than, 0, length);
  if (question.head) detail::check_head(*question.head, info);
}

struct Pair {
  ModelHead head{};
  std::size_t row = 0;  // of the question's rows
  std::int64_t key = 0;
  double weight = -1, score = 0;
};

class Asker {
 public:
  Asker(const Model& model, const TensorView& tokens, const WhyQuestion& question)
      : model_(model),
        question_(question),
        tokens_(tokens),
        ids_(model.tokens_of(tokens).ids),
        threads_(question.threads == 0 ? default_threads() : question.threads) {
    check(question, model.info(), std::ssize(ids_));
    places_ = question.rows;
    for (const Places* more : {&question.keys, &question.than})
      places_.insert(places_.end(), more->begin(), more->end());
    looks_.resize(places_.size());
  }

  WhyAnswer run() {
    ModelHooks hooks;
    hooks.attend = [this](const LayerCall& call) { return attend(call); };
    traces_ = detail::trace_rows(model_, tokens_, places_, hooks, threads_);
    const Pair chosen = visible_pair("keys", question_.keys, std::nullopt);
    WhyAnswer answer{split_of(chosen)};
    if (!question_.than.empty()) answer.than = split_of(visible_pair("than", question_.than, chosen));
    return answer;
  }

 private:
  Tensor attend(const LayerCall& call) {
    for (std::size_t i = 0; i < places_.size(); ++i)
      looks_[i].push_back(detail::attend_row(call, places_[i], i < question_.rows.size()));
    scales_.push_back(call.options.scale.value_or(1 / std::sqrt(static_cast<double>(call.query.size(2)))));
    return attention(call.query, call.key, call.value, call.options).output;
  }

  [[nodiscard]] Pair visible_pair(const char* name, const Places& keys,
                                  const std::optional<Pair>& like) const {
    const Pair pair = heaviest_pair(keys, like);
    if (pair.weight < 0)
      detail::refuse(name, " has ", keys.front(), ", which row ", question_.rows[like ? like->row : 0],
                     " may not see; a visible key is expected");
    return pair;
  }

  // Searches all heads or the question's head, in the question's rows or in the row of `like`.
  [[nodiscard]] Pair heaviest_pair(const Places& keys, const std::optional<Pair>& like) const {
    Pair best;
    const auto head = like ? std::optional(like->head) : question_.head;
    for (std::size_t row = 0; row < question_.rows.size(); ++row) {
      if (like && like->row != row) continue;
      for (std::int64_t layer = 0; layer < model_.info().layers; ++layer) {
        const RowAttention& look = looks_[row][static_cast<std::size_t>(layer)];
        for (std::int64_t h = 0; h < model_.info().heads; ++h) {
          const ModelHead one{layer, h};
          if (head && one != *head) continue;
          for (const std::int64_t key : keys) {
            const double weight = look.weights.at<float>(h, 0, key), score = look.scores.at<float>(h, 0, key);
            if (score != -HUGE_VAL && weight > best.weight) best = {one, row, key, weight, score};
          }
        }
      }
    }
    return best;
  }

  // The parts of one side at a place, with the key that each earlier head looked at most there.
  [[nodiscard]] std::pair<std::vector<StreamPart>, Tensor> side_of(std::size_t index, const ModelHead& head,
                                                                   detail::InputKind kind) const {
    const std::int64_t at = places_[index];
    detail::StreamParts stream =
        detail::parts_of_stream(model_, traces_[index], ids_, at, head.layer, threads_);
    for (StreamPart& part : stream.parts) {
      if (part.kind != StreamPart::Kind::head) continue;
      const RowAttention& look = looks_[index][static_cast<std::size_t>(part.layer)];
      part.from = look.heaviest.at<std::int64_t>(part.head, 0, 0);
      part.from_weight = part.from < 0 ? 0 : look.heaviest_weight.at<float>(part.head, 0, 0);
    }
    const Tensor row = Tensor::copy_of(traces_[index].streams.view().narrow(0, head.layer, 1));
    Tensor made =
        detail::project_parts(stream, model_.parts().family->head_input(head.layer, kind, head.head, row),
                              model_.info().head_dim, at, std::ssize(ids_), threads_);
    return {std::move(stream.parts), std::move(made)};
  }

  [[nodiscard]] ScoreSplit split_of(const Pair& pair) const {
    const ModelInfo& info = model_.info();
    const ModelHead key_head{pair.head.layer, pair.head.head / (info.heads / info.kv_heads)};
    const auto key_place = static_cast<std::size_t>(
        std::find(places_.begin() + static_cast<std::ptrdiff_t>(question_.rows.size()), places_.end(),
                  pair.key) -
        places_.begin());
    ScoreSplit made;
    made.head = pair.head;
    made.row = places_[pair.row];
    made.key = pair.key;
    made.biased = pair.score;
    made.weight = pair.weight;
    auto [query_parts, query] = side_of(pair.row, pair.head, detail::InputKind::query);
    auto [key_parts, key] = side_of(key_place, key_head, detail::InputKind::key);
    made.query_parts = std::move(query_parts);
    made.key_parts = std::move(key_parts);
    fill_table(query, key, scales_[static_cast<std::size_t>(pair.head.layer)], made);
    return made;
  }

  void fill_table(const Tensor& query, const Tensor& key, double scale, ScoreSplit& made) const {
    const std::int64_t rows = query.size(0), columns = key.size(0), size = query.size(1);
    made.table = Tensor({rows, columns}, DType::f64);
    double* to = made.table.values<double>().data();
    const double *q = query.values<double>().data(), *k = key.values<double>().data();
    parallel_for(rows, threads_, [&](std::int64_t i, int /*worker*/) {
      for (std::int64_t j = 0; j < columns; ++j)
        to[i * columns + j] = scale * std::inner_product(q + i * size, q + (i + 1) * size, k + j * size, 0.0);
    });
    const auto all = std::as_const(made.table).values<double>();
    made.score = std::accumulate(all.begin(), all.end(), 0.0);
  }

  const Model& model_;
  const WhyQuestion& question_;
  const TensorView& tokens_;
  std::vector<std::int64_t> ids_;
  int threads_;
  Places places_;                                 // rows, keys, other keys
  std::vector<std::vector<RowAttention>> looks_;  // of each place, by layer
  std::vector<double> scales_;                    // by layer
  std::vector<RowTrace> traces_;                  // of each place
};

}  // namespace

std::string to_string(const ModelHead& head) {
  return std::to_string(head.layer) + "." + std::to_string(head.head);
}

std::string to_string(const StreamPart& part) {
  using Kind = StreamPart::Kind;
  if (part.kind == Kind::head) return to_string(ModelHead{part.layer, part.head});
  if (part.kind == Kind::mlp) return "MLP " + std::to_string(part.layer);
  return part.kind == Kind::token ? "token" : part.kind == Kind::position ? "position" : "biases";
}

WhyAnswer why(const Model& model, const TensorView& tokens, const WhyQuestion& question) {
  return Asker(model, tokens, question).run();
}

ScoreSplit difference(const ScoreSplit& a, const ScoreSplit& b) {
  if (a.table.shape() != b.table.shape())
    detail::refuse("b has a table of shape ", b.table.shape(), "; ", a.table.shape(),
                   ", as a has, is expected");
  ScoreSplit made = a;
  made.score -= b.score;
  made.biased -= b.biased;
  made.weight -= b.weight;
  const auto to = made.table.values<double>();
  const auto less = b.table.values<double>();
  std::ranges::transform(to, less, to.begin(), std::minus<>());
  return made;
}

std::vector<double> query_shares(const ScoreSplit& split) {
  std::vector<double> shares(split.query_parts.size());
  const auto table = split.table.values<double>();
  for (std::size_t i = 0; i < table.size(); ++i) shares[i / split.key_parts.size()] += table[i];
  return shares;
}

std::vector<double> key_shares(const ScoreSplit& split) {
  std::vector<double> shares(split.key_parts.size());
  const auto table = split.table.values<double>();
  for (std::size_t i = 0; i < table.size(); ++i) shares[i % split.key_parts.size()] += table[i];
  return shares;
}

std::vector<PartPair> largest_pairs(const ScoreSplit& split, std::int64_t count) {
  if (count < 0) detail::refuse("count is ", count, "; 0 or more is expected");
  const auto shares = split.table.values<double>();
  std::vector<double> sizes;
  for (const double share : shares) sizes.push_back(std::abs(share));
  std::vector<PartPair> pairs;
  const std::int64_t columns = split.table.size(1);
  for (const std::int64_t at : detail::largest_of(sizes, count))
    pairs.push_back({at / columns, at % columns, shares[static_cast<std::size_t>(at)]});
  return pairs;
}

}  // namespace heed
