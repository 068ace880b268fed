#include "look/beside.hpp"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "looked_at.hpp"
#include "options.hpp"

namespace heed::cli {
namespace {

// The names of its layers with the document's name before each.
std::vector<LayerHeads> layers_of(const AttentionReport& report, const std::string& name) {
  if (report.layers.empty()) return {{name, report.heads}};
  std::vector<LayerHeads> layers;
  for (const LayerHeads& layer : report.layers) layers.push_back({name + " " + layer.name, layer.heads});
  return layers;
}

void require_alike(const AttentionReport& own, const AttentionReport& other, const std::string& path) {
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    throw UsageError("--beside is '" + path + "', which has " + found + "; " + expected +
                     ", as the first document has, are expected");
  };
  const auto same = [&](const char* what, std::int64_t found, std::int64_t expected) {
    if (found != expected) refuse(std::to_string(found) + " " + what, std::to_string(expected));
  };
  if (other.dtype != own.dtype)
    refuse("numbers of " + std::string(name_of(other.dtype)), "those of " + std::string(name_of(own.dtype)));
  same("batch entries", other.batch, own.batch);
  same("heads", other.heads, own.heads);
  same("rows", other.queries, own.queries);
  same("keys", other.keys, own.keys);
}

}  // namespace

AttentionReport with_beside(const AttentionReport& own, const std::string& name, const std::string& path,
                            const PageOptions& options) {
  Document document = open_looked_at(path);
  require_alike(own, document.report, path);
  AttentionReport& other = document.report;
  add_page_weights(document, options, 2 * own.heads);
  std::vector<LayerHeads> layers = layers_of(own, name);
  const std::string stem = std::filesystem::path(path).stem().string();
  for (LayerHeads& layer : layers_of(other, stem == name ? stem + " beside" : stem))
    layers.push_back(std::move(layer));
  other.query_tokens = own.query_tokens;
  other.key_tokens = own.key_tokens;
  other.query_token_ids = own.query_token_ids;
  other.key_token_ids = own.key_token_ids;
  AttentionReport both = join_layers({{"own", own}, {"beside", std::move(other)}});
  both.layers = std::move(layers);
  return both;
}

}  // namespace heed::cli
