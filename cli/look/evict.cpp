#include "look/evict.hpp"

#include <algorithm>

#include "command.hpp"
#include "look/choice.hpp"

namespace heed::cli {
namespace {

// SnapKV selects keys with the last rows of a prompt; other policies work without a prompt.
std::int64_t prompt_for(const EvictionPolicy& policy, const LookArguments& arguments, std::int64_t queries) {
  if (arguments.prompt) return *arguments.prompt;
  return policy.kind == EvictionKind::snapkv ? std::max(policy.recent, queries / 2) : 0;
}

// Pads a view to [B, H, L, D]. Axes may be missing before there is a report.
TensorView with_all_axes(TensorView view) {
  while (view.rank() < 4) view = view.unsqueeze(0);
  return view;
}

HeadLoss loss_of(const Eviction& eviction, std::int64_t batch, std::int64_t head, std::int64_t top_k) {
  HeadLoss loss{batch, head, 0, {}};
  const std::int64_t queries = eviction.trace.dropped.size(2);
  for (std::int64_t i = eviction.prompt; i < queries; ++i) {
    const double dropped = number_at(eviction.trace.dropped, {batch, head, i});
    loss.mean += dropped / static_cast<double>(queries - eviction.prompt);
    if (dropped > 0) loss.most.push_back({i, dropped});
  }
  std::stable_sort(loss.most.begin(), loss.most.end(),
                   [](const RowLoss& a, const RowLoss& b) { return a.dropped > b.dropped; });
  if (static_cast<std::int64_t>(loss.most.size()) > top_k) loss.most.resize(static_cast<std::size_t>(top_k));
  return loss;
}

}  // namespace

void check_evictions(const Document& document, const LookArguments& arguments) {
  const std::int64_t queries = axis_size(document, 2);
  for (const auto& [text, policy] : arguments.evict) {
    if (queries == 0) throw UsageError("--evict is given for a call without queries");
    const std::int64_t least = policy.kind == EvictionKind::snapkv ? policy.recent : 0;
    if (least >= queries)
      throw UsageError("--evict is '" + text + "', in which the last " + std::to_string(least) +
                       " rows of a prompt vote; there are " + std::to_string(queries) + " queries");
    const std::int64_t prompt = prompt_for(policy, arguments, queries);
    if (prompt < least || prompt >= queries)
      throw UsageError("--prompt is " + std::to_string(prompt) + "; " + std::to_string(least) + " to " +
                       std::to_string(queries - 1) + " of the " + std::to_string(queries) +
                       " queries are expected" + (least > 0 ? " for " + text : ""));
  }
}

std::vector<Eviction> evictions_of(
    const Document& document, const LookArguments& arguments,
    const std::function<void(std::string_view policy, double share)>& progress) {
  std::vector<Eviction> evictions;
  for (const auto& [text, policy] : arguments.evict) {
    progress(text, static_cast<double>(evictions.size()) / static_cast<double>(arguments.evict.size()));
    const std::int64_t prompt = prompt_for(policy, arguments, axis_size(document, 2));
    evictions.push_back({text, prompt,
                         trace_eviction(with_all_axes(document.query), with_all_axes(document.key),
                                        document.options, policy, prompt)});
  }
  return evictions;
}

std::vector<HeadLoss> losses_of(const Eviction& eviction, const LookArguments& arguments) {
  std::vector<HeadLoss> losses;
  for (std::int64_t b = 0; b < eviction.trace.dropped.size(0); ++b)
    for (std::int64_t h = 0; h < eviction.trace.dropped.size(1); ++h)
      if (is_asked_for(arguments, b, h)) losses.push_back(loss_of(eviction, b, h, arguments.top_k));
  return losses;
}

}  // namespace heed::cli
