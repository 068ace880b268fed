#include "captured_run.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/message.hpp"
#include "core/tensor/concatenate.hpp"
#include "heed/error.hpp"
#include "io/fault.hpp"
#include "io/json_text.hpp"
#include "json.hpp"

namespace heed::cli {
namespace {

constexpr const char* kRunFormat = "heed-run-1";
constexpr std::size_t kMaxFiles = 1'000'000;
constexpr std::size_t kMaxText = 65536;  // bytes of a metadata value

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none);
}

std::vector<std::string> captured_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") && name.find("-layer-") != std::string::npos &&
        files.size() < kMaxFiles)
      files.push_back(entry.path().string());
  }
  if (files.empty())
    detail::refuse(ErrorCode::io, folder,
                   " has no captured calls; files NNNN-layer-LL.safetensors are expected");
  std::ranges::sort(files, [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return files;
}

void require_captured_call(const std::string& path, const io::SafetensorsReader& file) {
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kRunFormat)
    detail::refuse(ErrorCode::io, path, " is not a captured call: the format in its metadata is not '",
                   kRunFormat, "'");
}

nlohmann::ordered_json captured_value(const io::SafetensorsReader& file, const std::string& name) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end() || found->second.size() > kMaxText) return nullptr;
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  return detail::json_of(found->second, {.depth = kAny, .members = kAny})
      .value_or(nlohmann::ordered_json::value_t::discarded);
}

namespace {

struct Layer {
  std::string kind;  // "encoder", "decoder", "cross", or none
  std::string number;
  Tensor weights;  // [B, H, Lq, Lk]
};

Layer read_layer(const std::string& path) {
  const io::SafetensorsReader file(path);
  require_captured_call(path, file);
  const Json number = captured_value(file, "layer"), kind = captured_value(file, "kind"),
             kind_number = captured_value(file, "kind_layer");
  if (!number.is_number_integer()) io::detail::fail(path, "has no whole number 'layer' in its metadata");
  if (!file.contains("weights"))
    io::detail::fail(path, "has no weights; a folder of capture(weights=True, to=…) is expected");
  for (const char* part : {"rows", "heads"})
    if (!captured_value(file, part).is_null())
      io::detail::fail(path, "has only some of the ", part, "; a capture of all of them is expected");
  Layer layer{"", std::to_string(number.get<std::int64_t>()), file.read("weights")};
  if (kind.is_string() && kind_number.is_number_integer()) {
    layer.kind = kind.get<std::string>();
    layer.number = std::to_string(kind_number.get<std::int64_t>());
  }
  if (layer.weights.rank() != 4 || layer.weights.count() == 0 || !is_floating(layer.weights.dtype()))
    io::detail::fail(path, "has weights of dtype ", layer.weights.dtype(), " and shape ",
                     layer.weights.shape(), "; floats [B, H, Lq, Lk] are expected");
  return layer;
}

void check_alike(const std::string& path, const Tensor& one, const Tensor& first) {
  const bool same =
      one.size(0) == first.size(0) && one.size(2) == first.size(2) && one.size(3) == first.size(3);
  if (!same || one.dtype() != first.dtype())
    io::detail::fail(path, "has weights of shape ", one.shape(), "; the rows and keys of the first call, ",
                     first.shape(), ", are expected in all layers");
}

// The layers of the first pass: it ends when a layer occurs again.
std::vector<Layer> first_pass(const std::string& folder) {
  std::vector<Layer> layers;
  for (const std::string& path : captured_files(folder)) {
    Layer layer = read_layer(path);
    const bool again = std::ranges::any_of(layers, [&](const Layer& before) {
      return before.kind == layer.kind && before.number == layer.number;
    });
    if (again) break;
    if (!layers.empty()) check_alike(path, layer.weights, layers.front().weights);
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace

Document open_captured_weights(const std::string& folder) {
  const std::vector<Layer> layers = first_pass(folder);
  std::vector<TensorView> weights;
  std::vector<LayerHeads> heads;
  const bool one_kind =
      std::ranges::all_of(layers, [&](const Layer& layer) { return layer.kind == layers.front().kind; });
  for (const Layer& layer : layers) {
    weights.push_back(layer.weights);
    heads.push_back({one_kind || layer.kind.empty() ? layer.number : layer.kind + " " + layer.number,
                     layer.weights.size(1)});
  }
  try {
    Document document = document_of_weights(detail::concatenated(weights, 1));
    document.report.layers = std::move(heads);
    return document;
  } catch (const Error& error) {
    io::detail::fail(folder, "has no valid attention weights: ", error.what());
  }
}

}  // namespace heed::cli
