#include <algorithm>
#include <cmath>
#include <iostream>
#include <sstream>
#include <vector>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "heads/questions.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/look.hpp"
#include "heed/model/why.hpp"
#include "json.hpp"
#include "looked_at.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

struct KeptHead {
  ModelHead head{};
  double lost = 0;    // share of its weights on keys that are not kept
  double copies = 0;  // induction score on random tokens, twice; NaN if there is none
  bool retrieval = false;
};

std::vector<KeptHead> kept_heads(const heed::Model& model, const ModelTokens& tokens,
                                 const EvictionPolicy& policy, double most) {
  const auto length = std::ssize(tokens.ids);
  const Tensor lost = lost_by_eviction(model, TensorView(tokens.ids.data(), {length}), policy);
  TextLookOptions summaries;
  summaries.keep_rows = false;
  summaries.report.top_k = 0;
  summaries.report.received = false;
  summaries.report.map = {};
  const TextLook copies = look_at_text(model, repeated_random_tokens(model), summaries);
  std::vector<KeptHead> heads;
  for (std::int64_t layer = 0; layer < lost.size(0); ++layer)
    for (std::int64_t head = 0; head < lost.size(1); ++head) {
      const double share = lost.at<double>(layer, head);
      heads.push_back({{layer, head}, share, copies.report.summaries[heads.size()].induction, share > most});
    }
  return heads;
}

Json kept_json(const HeadsArguments& arguments, const ModelInfo& info, std::int64_t tokens,
               const std::vector<KeptHead>& heads) {
  Json list = Json::array();
  for (const KeptHead& one : heads)
    list.push_back({{"head", to_string(one.head)},
                    {"key_head", one.head.head / (info.heads / info.kv_heads)},
                    {"lost", one.lost},
                    {"copies", std::isnan(one.copies) ? Json(nullptr) : Json(one.copies)},
                    {"kind", one.retrieval ? "retrieval" : "streaming"}});
  return {{"keep", arguments.keep}, {"tokens", tokens}, {"lost", arguments.lost}, {"heads", list}};
}

// A line a layer with a score for each key head, 0 to 1: the most that a head of its group loses.
std::string scores_tsv(const ModelInfo& info, const std::vector<KeptHead>& heads) {
  const std::int64_t group = info.heads / info.kv_heads;
  std::ostringstream text;
  for (std::int64_t layer = 0; layer < info.layers; ++layer)
    for (std::int64_t head = 0; head < info.kv_heads; ++head) {
      const auto first = heads.begin() + layer * info.heads + head * group;
      const double most = std::max_element(first, first + group, [](const KeptHead& a, const KeptHead& b) {
                            return a.lost < b.lost;
                          })->lost;
      text << most << (head + 1 == info.kv_heads ? '\n' : '\t');
    }
  return text.str();
}

void save(const HeadsArguments& arguments, const Json& json, const ModelInfo& info,
          const std::vector<KeptHead>& heads) {
  const bool table = arguments.save.ends_with(".tsv");
  io::write_text(arguments.save, table ? scores_tsv(info, heads) : json.dump(1) + "\n");
}

}  // namespace

EvictionPolicy policy_in(const std::string& keep) {
  const std::vector<std::int64_t> rows = whole_numbers(keep, '+');
  if (rows.size() != 2 || rows[0] < 0 || rows[1] < 1)
    refuse_value("--keep", keep, "a number of first keys and one of last keys, such as 4+64,");
  return {.kind = EvictionKind::streaming, .chosen = rows[0], .recent = rows[1]};
}

void answer_kept(const heed::Model& model, const HeadsArguments& arguments, const EvictionPolicy& policy) {
  if (!model.info().causal)
    refuse_usage("--keep is given for a model whose rows see later keys; a causal model is expected");
  const ModelTokens tokens = arguments.text_file.empty()
                                 ? read_model_text(model, arguments.text)
                                 : read_tokens_of(model, file_text(arguments.text_file), arguments.text_file);
  const auto length = std::ssize(tokens.ids);
  if (policy.chosen >= length || policy.recent >= length - policy.chosen)
    refuse_usage("--keep is '", arguments.keep, "', which keeps all of the ", counted(length, "token"),
                 " of the text; a longer text is expected");
  std::vector<KeptHead> heads = kept_heads(model, tokens, policy, arguments.lost);
  const auto count = std::ssize(tokens.ids);
  const Json json = kept_json(arguments, model.info(), count, heads);
  if (!arguments.save.empty()) save(arguments, json, model.info(), heads);
  if (arguments.json) {
    std::cout << json.dump() << '\n';
    return;
  }
  const auto retrieval = std::ranges::count_if(heads, [](const KeptHead& one) { return one.retrieval; });
  const TextOutput output = standard_output();
  output.stream << counted(retrieval, "head") << " of " << heads.size() << " would lose more than "
                << fixed(100 * arguments.lost, 1) << " % of the weights with the first " << policy.chosen
                << " and the last " << policy.recent << " keys alone (" << counted(count, "token") << ").\n\n"
                << bold("head       lost  copies", output.color) << '\n';
  std::ranges::stable_sort(heads, std::ranges::greater(), &KeptHead::lost);
  heads.resize(std::min(heads.size(), static_cast<std::size_t>(arguments.top)));
  for (const KeptHead& one : heads)
    output.stream << left_aligned(to_string(one.head), 7) << right_aligned(fixed(one.lost, 3), 8)
                  << right_aligned(fixed(one.copies, 3), 8) << "  "
                  << (one.retrieval ? "retrieval" : "streaming") << '\n';
}

}  // namespace heed::cli
