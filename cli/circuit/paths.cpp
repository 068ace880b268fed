// The paths of one head as text and JSON.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

#include "circuit/traced.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "json.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kPathColumns = 10;

std::string into_text(EdgeInto into) {
  return into == EdgeInto::value ? "the values" : into == EdgeInto::key ? "the keys" : "the query";
}

}  // namespace

void print_paths(const TextOutput& output, const Traced& traced, const ModelHead& head,
                 const HeadPaths& paths, std::int64_t top) {
  std::ostream& out = output.stream;
  out << bold(traced.title(), output.color) << '\n'
      << "head " << to_string(head) << " at " << traced.word(paths.row) << " adds "
      << signed_fixed(paths.share, 3) << " itself\n\n"
      << bold(line_of({"share", "weight", "", "from the value of"}, {kPathColumns, kPathColumns, 2, -20}),
              output.color)
      << '\n';
  std::vector<HeadKeyShare> keys = paths.keys;
  std::ranges::stable_sort(keys, [](const HeadKeyShare& a, const HeadKeyShare& b) {
    return std::abs(a.share) > std::abs(b.share);
  });
  const auto most = static_cast<std::size_t>(top);
  keys.resize(std::min(keys.size(), most));
  for (const HeadKeyShare& one : keys)
    out << in_columns({signed_fixed(one.share, 3), fixed(one.weight, 3), ""}, {kPathColumns, kPathColumns, 2})
        << traced.word(one.key) << '\n';
  if (paths.later.empty()) return;
  out << '\n'
      << bold(line_of({"share", "", "through a later head, in"}, {kPathColumns, 2, -30}), output.color)
      << '\n';
  for (std::size_t i = 0; i < std::min(paths.later.size(), most); ++i)
    out << in_columns({signed_fixed(paths.later[i].share, 3), ""}, {kPathColumns, 2})
        << into_text(paths.later[i].into) << " of " << to_string(paths.later[i].reader) << '\n';
}

void print_paths_json(const Traced& traced, const ModelHead& head, const HeadPaths& paths) {
  Json json = {{"tokens", traced.tokens.shown},
               {"row", paths.row},
               {"token", traced.token(paths.token)},
               {"id", paths.token},
               {"logit", paths.logit},
               {"head", to_string(head)},
               {"share", paths.share},
               {"keys", Json::array()},
               {"later", Json::array()}};
  if (const auto& than = traced.circuit.than) json["than"] = {{"token", traced.token(*than)}, {"id", *than}};
  for (const HeadKeyShare& one : paths.keys)
    json["keys"].push_back({{"key", one.key}, {"weight", one.weight}, {"share", one.share}});
  for (const PathOfTwo& one : paths.later)
    json["later"].push_back(
        {{"head", to_string(one.reader)}, {"into", name_of(one.into)}, {"share", one.share}});
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace heed::cli
