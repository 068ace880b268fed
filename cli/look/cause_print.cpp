#include "look/cause_print.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "draw/table.hpp"
#include "look/print.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr int kTokenColumns = 20;
constexpr int kNumberColumns = 10;

std::string shown_token(const CauseText& text, std::int64_t id) {
  return shortened(token_text(text.token_of(id)), kTokenColumns);
}

void print_columns(const TextOutput& output, const std::string& name, const std::vector<std::string>& columns,
                   bool heading = false) {
  std::string line = "  " + left_aligned(name, kTokenColumns + 2);
  for (const std::string& column : columns) line += right_aligned(column, kNumberColumns);
  output.stream << (heading ? bold(line, output.color) : line) << '\n';
}

std::string changed_text(const CauseQuestion& question) {
  const std::string heads = (question.heads.size() == 1 ? "head " : "heads ") + heads_text(question.heads);
  if (question.kind == CauseKind::patch)
    return heads + " from a run on “" + shortened(printable(question.text), 60) + "”";
  return heads + (question.to == Ablation::zero ? " set to zero" : " set to the mean over the text");
}

// The indices of the largest values, in descending order.
template <class Value>
std::vector<std::int64_t> largest_places(std::int64_t count, std::int64_t wanted, Value value) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return value(a) > value(b); });
  order.resize(static_cast<std::size_t>(std::min(count, wanted)));
  return order;
}

void print_largest_shares(const TextOutput& output, const CauseText& text, const Attribution& made) {
  const auto shares = made.heads.values<double>();
  const std::int64_t heads = text.info.heads;
  const auto share = [&](std::int64_t i) { return shares[static_cast<std::size_t>(i)]; };
  output.stream << '\n';
  print_columns(output, "largest shares", {"share"}, true);
  for (const std::int64_t i :
       largest_places(std::ssize(shares), text.top_k, [&](std::int64_t at) { return std::abs(share(at)); }))
    print_columns(output, heads_text({{i / heads, i % heads}}), {signed_fixed(share(i), 4)});
}

// Prints each layer's heads, then its MLP.
void print_layers(const TextOutput& output, const CauseText& text, const Attribution& made) {
  const std::int64_t layers = text.info.layers, heads = text.info.heads;
  Tensor values({layers, heads + 1}, DType::f64);
  copy(made.heads, values.mutable_view().narrow(1, 0, heads));
  Table table{{}, {}, values};
  for (std::int64_t head = 0; head < heads; ++head) table.columns.push_back(std::to_string(head));
  table.columns.emplace_back("MLP");
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    values.at<double>(layer, heads) = made.mlps[static_cast<std::size_t>(layer)];
    table.rows.push_back("layer " + std::to_string(layer));
  }
  output.stream << '\n';
  for (const std::string& line : draw_table(table, 2, output.width, output.color))
    output.stream << line << '\n';
}

}  // namespace

std::string heads_text(const std::vector<ModelHead>& heads) {
  std::string text;
  for (const ModelHead& head : heads) {
    if (!text.empty()) text += ", ";
    text += std::to_string(head.layer);
    text += '.';
    text += std::to_string(head.head);
  }
  return text;
}

void print_effect(const TextOutput& output, const CauseText& text, const Effect& effect) {
  print_line(output, changed_text(text.question));
  output.stream << '\n';
  if (effect.predicts) {
    print_columns(output, "after " + word_with_place(text.tokens, effect.row), {"before", "after"}, true);
    std::map<std::string, int> alike;
    for (const TokenShift& shift : effect.tokens) ++alike[shown_token(text, shift.token)];
    for (const TokenShift& shift : effect.tokens) {
      std::string name = shown_token(text, shift.token);
      if (alike[name] > 1) name += " #" + std::to_string(shift.token);
      print_columns(output, name, {fixed(shift.before, 4), fixed(shift.after, 4)});
    }
    output.stream << '\n';
    print_columns(output, "mean loss, nats", {fixed(effect.loss_before, 4), fixed(effect.loss_after, 4)});
    print_line(output, "  KL divergence after " + word_with_place(text.tokens, effect.row) + ": " +
                           fixed(effect.divergence, 4) + " nats");
  }
  print_line(output,
             "  hidden states change by " + fixed(100 * effect.moved, 1) + " % of their size, on average");
}

void print_attribution(const TextOutput& output, const CauseText& text, const Attribution& made) {
  const auto shares = made.heads.values<double>();
  const auto sum = [](const auto& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  print_line(output, "logit of " + shown_token(text, made.token) + " after " +
                         word_with_place(text.tokens, made.row) + ": " + fixed(made.logit, 4) +
                         ", which is the sum of");
  print_columns(output, "embedding", {signed_fixed(made.embedding, 4)});
  print_columns(output, "heads", {signed_fixed(sum(shares), 4)});
  print_columns(output, "biases of W_O", {signed_fixed(sum(made.biases), 4)});
  print_columns(output, "MLPs", {signed_fixed(sum(made.mlps), 4)});
  print_columns(output, "biases at the end", {signed_fixed(made.constant, 4)});
  print_largest_shares(output, text, made);
  print_layers(output, text, made);
}

void print_lens(const TextOutput& output, const CauseText& text, const Lens& lens) {
  print_line(output, "what each layer would predict after " + word_with_place(text.tokens, lens.row));
  const std::vector<int> widths = {-13, kTokenColumns, 8};
  print_heading(output,
                in_columns({"  after", shown_token(text, lens.token), "rank"}, widths) + "  likeliest");
  for (std::size_t n = 0; n < lens.layers.size(); ++n) {
    const LensLayer& layer = lens.layers[n];
    const std::string name = n == 0 ? "  embedding" : "  layer " + std::to_string(n - 1);
    std::string line =
        in_columns({name, fixed(layer.probability, 4), std::to_string(layer.rank)}, widths) + " ";
    for (std::size_t i = 0; i < layer.top.size(); ++i) {
      const std::string more = std::string(i == 0 ? " " : " · ") + shown_token(text, layer.top[i].token) +
                               " " + fixed(layer.top[i].probability, 3);
      if (i > 0 && display_width(line + more) > output.width) break;
      line += more;
    }
    output.stream << line << '\n';
  }
}

void print_rollout(const TextOutput& output, const CauseText& text, const Rollout& rollout) {
  const Tensor& flow = rollout.flow;
  print_line(output, "where tokens come from through all " + std::to_string(text.info.layers) +
                         " layers (attention rollout)");
  for (std::size_t i = 0; i < rollout.rows.size(); ++i) {
    print_heading(output, word_with_place(text.tokens, rollout.rows[i]));
    const auto row = static_cast<std::int64_t>(i);
    const auto share = [&](std::int64_t j) { return static_cast<double>(flow.at<float>(row, j)); };
    for (const std::int64_t j : largest_places(flow.size(1), text.top_k, share))
      print_columns(output, word_with_place(text.tokens, j), {fixed(share(j), 4)});
  }
}

}  // namespace heed::cli
