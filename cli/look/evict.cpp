#include "look/questions.hpp"

#include <algorithm>
#include <functional>

#include "command.hpp"
#include "core/tensor/lifted.hpp"
#include "heed/io/tensors.hpp"
#include "look/print.hpp"
#include "look/tables.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMaxRuns = 60;

// A policy and its effect on the call.
struct Eviction {
  std::string policy;       // as given
  std::int64_t prompt = 0;  // rows read in full before eviction starts
  EvictionTrace trace;
};

// A row and its masked mass: the share of its weights on evicted keys.
struct RowLoss {
  std::int64_t row = 0;
  double dropped = 0;
};

struct HeadLoss {
  std::int64_t batch = 0, head = 0;
  double mean = 0;            // over the rows after the prompt; NaN if any of them is NaN
  std::vector<RowLoss> most;  // the --top-k largest first; rows without loss are left out
};

// "h2o:32+64".
EvictionChoice eviction_in(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  const std::vector<std::int64_t> rows = whole_numbers(parts.back(), '+');
  const auto kind = eviction_kind_named(parts[0]);
  if (parts.size() != 2 || rows.size() != 2 || !kind || rows[0] < 0 || rows[1] < 1)
    refuse_value("--evict", text,
                 "streaming:SINKS+WINDOW, h2o:HEAVY+RECENT or snapkv:VOTED+WINDOW, such as streaming:4+64,");
  return {text, {.kind = *kind, .chosen = rows[0], .recent = rows[1]}};
}

// SnapKV selects keys with the last rows of a prompt; other policies work without a prompt.
std::int64_t prompt_for(const EvictionPolicy& policy, const EvictQuestion& question, std::int64_t queries) {
  if (question.prompt) return *question.prompt;
  return policy.kind == EvictionKind::snapkv ? std::max(policy.recent, queries / 2) : 0;
}

void check_evictions(const Subject& subject, const EvictQuestion& question) {
  const std::size_t layers = subject.document.report.layers.size();
  // A KV cache belongs to one layer. Its evictions depend on all heads of that layer together.
  if (layers > 1)
    refuse_usage("--evict works on one layer, but this call has the heads of ", layers,
                 subject.source.model.empty() ? "" : "; --layer N is expected with it");
  const std::int64_t queries = axis_size(subject.document, 2);
  for (const auto& [text, policy] : question.policies) {
    if (queries == 0) refuse_usage("--evict is given for a call without queries");
    const std::int64_t least = policy.kind == EvictionKind::snapkv ? policy.recent : 0;
    if (least >= queries)
      refuse_usage("--evict is '", text, "', in which the last ", counted(least, "row"),
                   " of a prompt must vote; ", there_are(queries, "query", "queries"));
    const std::int64_t prompt = prompt_for(policy, question, queries);
    if (prompt < least || prompt >= queries)
      refuse_usage("--prompt is ", prompt, "; ", least, " to ", queries - 1, " of the ", queries,
                   " queries are expected", least > 0 ? " for " + text : "");
  }
}

std::vector<Eviction> evictions_of(const Document& document, const EvictQuestion& question) {
  ProgressBar bar;
  std::vector<Eviction> evictions;
  for (const auto& [text, policy] : question.policies) {
    bar.show(text, static_cast<double>(evictions.size()) / static_cast<double>(question.policies.size()));
    const std::int64_t prompt = prompt_for(policy, question, axis_size(document, 2));
    evictions.push_back(
        {text, prompt,
         trace_eviction(heed::detail::lifted(document.query), heed::detail::lifted(document.key),
                        document.options, policy, prompt)});
  }
  return evictions;
}

HeadLoss loss_of(const Eviction& eviction, std::int64_t batch, std::int64_t head, std::int64_t top_k) {
  HeadLoss loss{batch, head, 0, {}};
  const std::int64_t queries = eviction.trace.dropped.size(2);
  for (std::int64_t i = eviction.prompt; i < queries; ++i) {
    const double dropped = number_at(eviction.trace.dropped, {batch, head, i});
    loss.mean += dropped / static_cast<double>(queries - eviction.prompt);
    if (dropped > 0) loss.most.push_back({i, dropped});
  }
  std::ranges::stable_sort(loss.most, std::ranges::greater(), &RowLoss::dropped);
  if (std::ssize(loss.most) > top_k) loss.most.resize(static_cast<std::size_t>(top_k));
  return loss;
}

std::vector<HeadLoss> losses_of(const Eviction& eviction, const Subject& subject) {
  std::vector<HeadLoss> losses;
  for (std::int64_t b = 0; b < eviction.trace.dropped.size(0); ++b)
    for (std::int64_t h = 0; h < eviction.trace.dropped.size(1); ++h)
      if (subject.includes(b, h)) losses.push_back(loss_of(eviction, b, h, subject.shared.keys()));
  return losses;
}

// The keys of a batch entry that were kept, and the row that evicted each of the others.
Json keys_json(const Eviction& eviction, std::int64_t batch) {
  const Tensor& gone = eviction.trace.gone;
  Json kept = Json::array(), rows = Json::array();
  for (std::int64_t j = 0; j < gone.size(1); ++j) {
    const std::int64_t row = gone.at<std::int64_t>(batch, j);
    const bool stays = row == eviction.trace.dropped.size(2);
    if (stays) kept.push_back(j);
    rows.push_back(stays ? Json() : Json(row));
  }
  return {{"batch", batch}, {"kept", kept}, {"gone_at_row", rows}};
}

Json evictions_json(const Subject& subject, const std::vector<Eviction>& evictions) {
  Json list = Json::array();
  for (const Eviction& eviction : evictions) {
    const Tensor& dropped = eviction.trace.dropped;
    Json json = {{"policy", eviction.policy},
                 {"prompt", eviction.prompt},
                 {"keys", Json::array()},
                 {"heads", Json::array()}};
    for (std::int64_t b = 0; b < eviction.trace.gone.size(0); ++b)
      if (b == subject.shared.batch.value_or(b)) json["keys"].push_back(keys_json(eviction, b));
    for (const HeadLoss& head : losses_of(eviction, subject)) {
      Json rows = Json::array();
      for (std::int64_t i = 0; i < dropped.size(2); ++i)
        rows.push_back(number_at(dropped, {head.batch, head.head, i}));
      json["heads"].push_back(
          {{"batch", head.batch}, {"head", head.head}, {"mean", head.mean}, {"dropped", rows}});
    }
    list.push_back(std::move(json));
  }
  return list;
}

// One line per policy, head and row, with the row's loss.
std::string evictions_csv(const Subject& subject, const std::vector<Eviction>& evictions) {
  const AttentionReport& report = subject.document.report;
  std::string text = csv_line({"policy", "prompt", "batch", "head", "row", "row_token", "dropped"});
  for (const Eviction& eviction : evictions)
    for (const HeadLoss& head : losses_of(eviction, subject))
      for (std::int64_t i = 0; i < report.queries; ++i)
        text += csv_line({eviction.policy, std::to_string(eviction.prompt), std::to_string(head.batch),
                          std::to_string(head.head), std::to_string(i),
                          csv_field(token_at(report.query_tokens, i)),
                          csv_number(number_at(eviction.trace.dropped, {head.batch, head.head, i}))});
  return text;
}

// The ranges where `is_one` holds, "0-3, 17, 40-63"; at most kMaxRuns of them.
std::string runs_text(std::int64_t count, const std::function<bool(std::int64_t)>& is_one) {
  std::string text;
  std::int64_t runs = 0;
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    if (!is_one(begin)) continue;
    while (end < count && is_one(end)) ++end;
    if (++runs > kMaxRuns) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(begin);
    if (end - begin > 1) text += "-" + std::to_string(end - 1);
  }
  if (runs > kMaxRuns) text += " … and " + std::to_string(runs - kMaxRuns) + " more; --json has all";
  return text.empty() ? "none" : text;
}

void print_keys(const TextOutput& output, const Document& document, const Eviction& eviction,
                std::int64_t batch) {
  const std::int64_t queries = document.report.queries, keys = document.report.keys;
  const auto stays = [&](std::int64_t j) {
    return eviction.trace.gone.at<std::int64_t>(batch, j) == queries;
  };
  std::int64_t kept = 0;
  for (std::int64_t j = 0; j < keys; ++j) kept += stays(j);
  const std::string of_batch = document.report.batch > 1 ? "batch " + std::to_string(batch) + ", " : "";
  const auto line = [&](const char* what, std::int64_t count,
                        const std::function<bool(std::int64_t)>& is_one) {
    print_line(output, "  " + of_batch + what + " " + std::to_string(count) + " of " + std::to_string(keys) +
                           " keys: " + runs_text(keys, is_one));
  };
  line("evicted", keys - kept, [&](std::int64_t j) { return !stays(j); });
  line("kept", kept, stays);
}

void print_eviction(const TextOutput& output, const Subject& subject, const Eviction& eviction) {
  const Document& document = subject.document;
  print_heading(output,
                eviction.policy +
                    (eviction.prompt > 0 ? ", after a prompt of " + std::to_string(eviction.prompt) : ""));
  std::int64_t batch = -1;
  for (const HeadLoss& head : losses_of(eviction, subject)) {
    if (head.batch != batch) print_keys(output, document, eviction, batch = head.batch);
    output.stream << "  " << plane_text(document, head.batch, head.head) << ": a row loses "
                  << fixed(head.mean, 4) << " of its weights on average\n";
    std::vector<std::string> items;
    for (const RowLoss& row : head.most)
      items.push_back("row " + key_text(document.report.query_tokens, row.row) + " " + fixed(row.dropped, 4));
    if (!items.empty()) print_items(output, items, 4);
  }
}

}  // namespace

void add_evict_options(CLI::App& app, EvictQuestion& question) {
  add_texts_option(
      app, "--evict", "POLICY",
      [&](const std::vector<std::string>& policies) {
        for (const std::string& policy : policies) question.policies.push_back(eviction_in(policy));
      },
      "show which keys a KV cache with this policy would have evicted, and what share of its weights each "
      "row lost: streaming:SINKS+WINDOW, h2o:HEAVY+RECENT, snapkv:VOTED+WINDOW; may be repeated");
  add_integer(app, "--prompt", {0}, question.prompt,
              "with --evict: the first N rows are a prompt, read whole before any key is evicted (default 0; "
              "snapkv: half of the rows)");
}

void answer_evict(Subject subject, const EvictQuestion& question) {
  check_evictions(subject, question);
  const std::vector<Eviction> evictions = evictions_of(subject.document, question);
  // No row of the report is needed, but an empty list would mean all.
  subject.complete({.received = false, .map = {}, .rows = {0}});
  if (!subject.shared.csv.empty()) io::write_text(subject.shared.csv, evictions_csv(subject, evictions));
  if (subject.shared.json)
    return print_json(subject.document, {{"evictions", evictions_json(subject, evictions)}});
  const TextOutput output = standard_output();
  print_call(output, subject.document);
  for (const Eviction& eviction : evictions) print_eviction(output, subject, eviction);
}

}  // namespace heed::cli
