#include "look/run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "captured_run.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "look/print.hpp"
#include "look/tables.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// Per-row results. Their means characterise a head.
constexpr std::array<const char*, 5> kRowResults = {"entropy", "distance", "dropped", "max_score", "lse"};

struct Call {
  std::string file;
  std::int64_t layer = 0;
  std::string module;
  std::vector<std::int64_t> heads;                                 // head numbers; empty: all
  std::vector<std::pair<std::string, Dims>> tensors;               // names and shapes
  std::vector<std::pair<std::string, std::vector<double>>> means;  // per head
};

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::io, path + " " + what);
}

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

Call read_call(const std::string& path) {
  const io::SafetensorsReader file(path);
  require_captured_call(path, file);
  Call call;
  call.file = std::filesystem::path(path).filename().string();
  const Json layer = captured_value(file, "layer"), module = captured_value(file, "module");
  const Json heads = captured_value(file, "heads");
  if (!layer.is_number_integer() || !module.is_string())
    refuse_file(path, "has no layer (a whole number) or module (a text) in its metadata");
  call.layer = layer.get<std::int64_t>();
  call.module = module.get<std::string>();
  if (heads.is_array())
    for (const Json& head : heads)
      if (head.is_number_integer()) call.heads.push_back(head.get<std::int64_t>());
  for (const std::string& name : file.names()) call.tensors.emplace_back(name, file.shape(name));
  for (const char* name : kRowResults)
    if (file.contains(name) && file.shape(name).size() == 3)
      call.means.emplace_back(name, means_of(file.read(name)));
  return call;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%10.4g", value);
  return std::isnan(value) ? "         -" : text;
}

void print_run_call(const TextOutput& output, const Call& call, std::size_t number) {
  output.stream << '\n'
                << bold("call " + std::to_string(number) + ", layer " + std::to_string(call.layer),
                        output.color)
                << ", " << token_text(call.module) << '\n';
  std::string held;
  for (const auto& [name, shape] : call.tensors)
    held += (held.empty() ? "  holds " : ", ") + token_text(name) + " " + to_string(shape);
  output.stream << held << '\n';
  if (call.means.empty()) return;
  output.stream << "  mean of  ";
  for (const auto& [name, means] : call.means) output.stream << right_aligned(name, 10);
  output.stream << '\n';
  for (std::size_t h = 0; h < call.means.front().second.size(); ++h) {
    const std::int64_t head = h < call.heads.size() ? call.heads[h] : static_cast<std::int64_t>(h);
    output.stream << "  " << left_aligned("head " + std::to_string(head), 9);
    for (const auto& [name, means] : call.means)
      output.stream << number_text(h < means.size() ? means[h] : std::nan(""));
    output.stream << '\n';
  }
}

Json call_json(const Call& call) {
  Json shapes = Json::object(), means = Json::object();
  for (const auto& [name, shape] : call.tensors)
    shapes[name] = std::vector<std::int64_t>(shape.begin(), shape.end());
  for (const auto& [name, of_heads] : call.means) means[name] = of_heads;  // NaN becomes null
  Json object = {{"file", call.file},
                 {"layer", call.layer},
                 {"module", call.module},
                 {"shapes", shapes},
                 {"means", means}};
  if (!call.heads.empty()) object["heads"] = call.heads;
  return object;
}

}  // namespace

void answer_run(const LookSource& source, bool json) {
  Json calls = Json::array();
  std::size_t number = 0;
  const std::vector<std::string> files = captured_files(source.document);
  const TextOutput output = standard_output();
  if (!json) output.stream << source.document << ": what capture(to=…) wrote, layers counted from 0\n";
  for (const std::string& file : files) {
    const Call call = read_call(file);
    const std::size_t here = number++;
    if (source.layer && std::to_string(call.layer) != *source.layer) continue;
    if (json)
      calls.push_back(call_json(call));
    else
      print_run_call(output, call, here);
  }
  if (json) output.stream << Json{{"calls", calls}}.dump() << '\n';
}

}  // namespace heed::cli
