// The cost of the table of heads beside the plain forward pass, on one thread, in turns. The model has
// GPT-2's width and random weights. Token frequencies follow Zipf's law.
//
//   heads LENGTH LAYERS ROUNDS [SPREAD]     prints user seconds of both, and ratios to the plain pass
//   heads LENGTH LAYERS 0                   runs the table once, and prints peak memory before and after
//
// SPREAD is the standard deviation of the weights. 0.02 is GPT-2's initialisation, with nearly uniform
// attention; 0.08 makes scores large.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "heed/io/tensors.hpp"
#include "heed/model/look.hpp"
#include "heed/model/model.hpp"
#include "heed/random.hpp"

namespace {

using heed::Dims;
using heed::Generator;
using heed::Model;
using heed::ModelTokens;
using heed::Tensor;
using heed::TensorView;
using heed::TextLookOptions;

constexpr std::int64_t kHeads = 12, kWidth = 768, kVocabulary = 8192;

class RandomModel {
 public:
  RandomModel(std::int64_t layers, std::int64_t context, double spread)
      : folder_(std::filesystem::temp_directory_path() / ("heads-" + std::to_string(context))),
        spread_(spread) {
    std::filesystem::create_directories(folder_);
    fill(layers, context);
    std::vector<std::pair<std::string, TensorView>> views(tensors_.begin(), tensors_.end());
    heed::io::write_safetensors(folder_ / "model.safetensors", views);
    std::ofstream(folder_ / "config.json")
        << R"({"model_type": "gpt2", "n_layer": )" << layers << ", \"n_head\": " << kHeads
        << ", \"n_embd\": " << kWidth << ", \"n_positions\": " << context
        << ", \"vocab_size\": " << kVocabulary << "}";
    tensors_.clear();
  }
  ~RandomModel() { std::filesystem::remove_all(folder_); }
  RandomModel(const RandomModel&) = delete;
  RandomModel& operator=(const RandomModel&) = delete;
  [[nodiscard]] Model load() const { return heed::load_model(folder_); }

 private:
  void add(const std::string& name, const Dims& shape, double around, double spread) {
    Tensor tensor(shape);
    heed::normal_(generator_, tensor, around, spread);
    tensors_.emplace_back(name, std::move(tensor));
  }
  void add_norm(const std::string& name) {
    add(name + ".weight", {kWidth}, 1, 0);
    add(name + ".bias", {kWidth}, 0, 0);
  }
  void add_linear(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    add(name + ".weight", {inputs, outputs}, 0, spread_);
    add(name + ".bias", {outputs}, 0, 0);
  }
  void fill(std::int64_t layers, std::int64_t context) {
    add("wte.weight", {kVocabulary, kWidth}, 0, spread_);
    add("wpe.weight", {context, kWidth}, 0, spread_);
    for (std::int64_t n = 0; n < layers; ++n) {
      const std::string at = "h." + std::to_string(n) + ".";
      add_norm(at + "ln_1");
      add_linear(at + "attn.c_attn", kWidth, 3 * kWidth);
      add_linear(at + "attn.c_proj", kWidth, kWidth);
      add_norm(at + "ln_2");
      add_linear(at + "mlp.c_fc", kWidth, 4 * kWidth);
      add_linear(at + "mlp.c_proj", 4 * kWidth, kWidth);
    }
    add_norm("ln_f");
  }

  std::filesystem::path folder_;
  double spread_;
  Generator generator_{1};
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

// The n-th most frequent token has a share of about 1 / n. Some of the most frequent ones are punctuation.
ModelTokens zipf_text(std::int64_t length) {
  Generator generator(2);
  Tensor uniform({length});
  heed::uniform_(generator, uniform);
  ModelTokens text;
  for (const float u : uniform.values<float>()) {
    const auto rank = static_cast<std::int64_t>(std::pow(static_cast<double>(kVocabulary), u));
    text.ids.push_back(std::min(rank, kVocabulary) - 1);
    const std::int64_t id = text.ids.back();
    text.shown.push_back(id == 1 ? "," : id == 2 ? "." : "t" + std::to_string(id));
  }
  return text;
}

double user_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + 1e-6 * static_cast<double>(usage.ru_utime.tv_usec);
}

// Peak memory of the process so far.
double peak_gigabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-9;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

struct Timed {
  const char* name;
  std::function<void()> call;
  std::vector<double> seconds;
};

TextLookOptions table() {
  TextLookOptions options;
  options.keep_rows = false;
  options.threads = 1;
  return options;
}

void time_in_turns(const Model& model, const ModelTokens& text, std::int64_t rounds) {
  TextLookOptions without = table();
  without.report.received = false;
  const TensorView ids(text.ids.data(), {static_cast<std::int64_t>(text.ids.size())});
  std::vector<Timed> all{{"plain forward pass", [&] { (void)model.hidden_states(ids, {}, 1); }, {}},
                         {"table of heads", [&] { (void)look_at_text(model, text, table()); }, {}},
                         {"table without received", [&] { (void)look_at_text(model, text, without); }, {}}};
  for (std::int64_t round = 0; round < rounds; ++round)
    for (Timed& one : all) {
      const double begin = user_seconds();
      one.call();
      one.seconds.push_back(user_seconds() - begin);
    }
  for (const Timed& one : all) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < one.seconds.size(); ++i)
      ratios.push_back(one.seconds[i] / all.front().seconds[i]);
    std::printf("%-24s %8.2f s   %.3f\n", one.name, median(one.seconds), median(ratios));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4 && count != 5) {
    std::fputs("heads LENGTH LAYERS ROUNDS [SPREAD]\n", stderr);
    return 2;
  }
  const auto number = [&](int i) { return std::strtoll(arguments[i], nullptr, 10); };
  const std::int64_t length = number(1), rounds = number(3);
  const RandomModel folder(number(2), length, count == 5 ? std::strtod(arguments[4], nullptr) : 0.02);
  const Model model = folder.load();
  const ModelTokens text = zipf_text(length);
  if (rounds > 0) {
    time_in_turns(model, text, rounds);
    return 0;
  }
  const double before = peak_gigabytes();
  const double begin = user_seconds();
  (void)look_at_text(model, text, table());
  std::printf("table of heads %.2f s, at most %.2f GB; before it at most %.2f GB\n", user_seconds() - begin,
              peak_gigabytes(), before);
}
