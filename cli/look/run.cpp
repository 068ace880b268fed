#include "look/questions.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "captured_run.hpp"
#include "core/message.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "heed/attention/results.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "look/print.hpp"
#include "look/subject.hpp"
#include "look/tables.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

std::vector<double> means_of(const Tensor& rows) {
  const Tensor copy = Tensor::copy_of(rows, DType::f64);
  std::vector<double> means;
  for (std::int64_t h = 0; h < copy.size(1); ++h) {
    double sum = 0;
    std::int64_t count = 0;
    for (std::int64_t b = 0; b < copy.size(0); ++b)
      for (std::int64_t i = 0; i < copy.size(2); ++i) {
        const double one = copy.at<double>(b, h, i);
        if (!std::isfinite(one)) continue;
        sum += one;
        ++count;
      }
    means.push_back(count > 0 ? sum / static_cast<double>(count) : std::nan(""));
  }
  return means;
}

// {"file", "layer", "module", "shapes", "means" of each head, "heads" if not all are kept}.
Json read_call(const std::string& path) {
  const io::SafetensorsReader file(path);
  require_captured_call(path, file);
  Json call = {{"file", std::filesystem::path(path).filename().string()},
               {"layer", captured_value(file, "layer")},
               {"module", captured_value(file, "module")},
               {"shapes", Json::object()},
               {"means", Json::object()}};
  if (!call["layer"].is_number_integer() || !call["module"].is_string())
    detail::refuse(ErrorCode::io, path, " has no whole number 'layer' or no text 'module' in its metadata");
  for (const std::string& name : file.names()) {
    const Dims shape = file.shape(name);
    call["shapes"][name] = std::vector<std::int64_t>(shape.begin(), shape.end());
  }
  // The means of results of rows characterise a head.
  const auto add_means = [&](const std::string& name) {
    if (file.contains(name) && file.shape(name).size() == 3) call["means"][name] = means_of(file.read(name));
  };
  for (const auto& [entry, member] : kResults<int>)
    if (entry.shape == ResultShape::row) add_means(std::string(entry.name()));
  add_means("dropped");  // the masked_mass of older files
  const Json heads = captured_value(file, "heads");
  if (heads.is_array())
    for (const Json& head : heads)
      if (head.is_number_integer()) call["heads"].push_back(head);
  return call;
}

std::string shape_text(const Json& shape) {
  return to_string(Dims(std::span<const std::int64_t>(shape.get<std::vector<std::int64_t>>())));
}

std::string number_text(double value) {
  return std::isnan(value) ? "         -" : formatted("%10.4g", value);
}

void print_call(const TextOutput& output, const Json& call, std::size_t number) {
  output.stream << '\n'
                << bold("call " + std::to_string(number) + ", layer " + call["layer"].dump(), output.color)
                << ", " << token_text(call["module"].get<std::string>()) << '\n';
  std::string held;
  for (const auto& [name, shape] : call["shapes"].items())
    held += (held.empty() ? "  holds " : ", ") + token_text(name) + " " + shape_text(shape);
  output.stream << held << '\n';
  const Json& means = call["means"];
  if (means.empty()) return;
  output.stream << "  mean of  ";
  for (const auto& [name, of_heads] : means.items()) output.stream << right_aligned(name, 10);
  output.stream << '\n';
  for (std::size_t h = 0; h < means.front().size(); ++h) {
    const bool is_named = call.contains("heads") && h < call["heads"].size();
    const std::string head = is_named ? call["heads"][h].dump() : std::to_string(h);
    output.stream << "  " << left_aligned("head " + head, 9);
    for (const Json& of_heads : means)
      output.stream << number_text(h < of_heads.size() ? of_heads[h].get<double>() : std::nan(""));
    output.stream << '\n';
  }
}

}  // namespace

void answer_run(const LookSource& source, bool json) {
  Json calls = Json::array();
  std::size_t number = 0;
  const std::vector<std::string> files = captured_files(source.document);
  const TextOutput output = standard_output();
  bool is_begun = json;
  std::vector<LayerHeads> layers;
  for (const std::string& file : files) {
    Json call = read_call(file);
    const std::size_t here = number++;
    const std::string layer = call["layer"].dump();
    const auto is_this = [&](const LayerHeads& other) { return other.name == layer; };
    if (std::ranges::none_of(layers, is_this)) layers.push_back({layer, 1});
    if (source.layer && layer != *source.layer) continue;
    if (!std::exchange(is_begun, true))
      output.stream << source.document << ": written by capture(to=…); layers are counted from 0\n";
    if (json)
      calls.push_back(std::move(call));
    else
      print_call(output, call, here);
  }
  if (source.layer) (void)heads_of_layer(layers, *source.layer);
  if (json) output.stream << Json{{"calls", calls}}.dump() << '\n';
}

}  // namespace heed::cli
