// Families of models: folders made here, a Llama computed from its formulas in f64, and refused folders.
// python/tests/test_pretrained.py compares every family with transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "heed/io/tensors.hpp"
#include "heed/model/model.hpp"
#include "heed/random.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::Model;
using heed::Tensor;
using heed::TensorView;
using heed::test::message_of;
using heed::test::TemporaryFolder;
using heed::test::write_file;
using Json = nlohmann::ordered_json;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

// A folder that is written just before it is read.
struct Folder {
  Json config;
  std::map<std::string, Tensor> tensors;
  TemporaryFolder files;

  void add(const std::string& name, const Dims& shape, heed::Generator& generator) {
    Tensor drawn = Tensor::uninitialized(shape, heed::DType::f32);
    for (float& value : drawn.values<float>()) value = static_cast<float>(generator.normal(0.2, 0.5));
    tensors.insert_or_assign(name, std::move(drawn));
  }
  Model load() {
    write_file(files / "config.json", config.dump());
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor.view());
    heed::io::write_safetensors(files / "model.safetensors", views);
    return heed::load_model(files.path());
  }
  // The message without the file's name at its beginning.
  std::string refusal() {
    const std::string message = message_of([&] { (void)load(); });
    const std::size_t end = message.find("' ");
    return end == std::string::npos || message.front() != '\'' ? message : message.substr(end + 2);
  }
};

constexpr std::int64_t kDim = 8, kHeads = 4, kKvHeads = 2, kHeadDim = 6, kInner = 10, kVocabulary = 11;

void fill_llama(Folder& folder) {
  folder.config = {{"model_type", "llama"},
                   {"hidden_size", kDim},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", kHeads},
                   {"num_key_value_heads", kKvHeads},
                   {"head_dim", kHeadDim},
                   {"intermediate_size", kInner},
                   {"vocab_size", kVocabulary},
                   {"max_position_embeddings", 32},
                   {"rms_norm_eps", 1e-5},
                   {"rope_theta", 100.0}};
  heed::Generator generator(5);
  folder.add("model.embed_tokens.weight", {kVocabulary, kDim}, generator);
  for (const std::string n : {"0", "1"}) {
    const std::string at = "model.layers." + n + ".";
    folder.add(at + "input_layernorm.weight", {kDim}, generator);
    folder.add(at + "self_attn.q_proj.weight", {kHeads * kHeadDim, kDim}, generator);
    folder.add(at + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, kDim}, generator);
    folder.add(at + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, kDim}, generator);
    folder.add(at + "self_attn.o_proj.weight", {kDim, kHeads * kHeadDim}, generator);
    folder.add(at + "post_attention_layernorm.weight", {kDim}, generator);
    folder.add(at + "mlp.gate_proj.weight", {kInner, kDim}, generator);
    folder.add(at + "mlp.up_proj.weight", {kInner, kDim}, generator);
    folder.add(at + "mlp.down_proj.weight", {kDim, kInner}, generator);
  }
  folder.add("model.norm.weight", {kDim}, generator);
  folder.add("lm_head.weight", {kVocabulary, kDim}, generator);
}

void fill_bert(Folder& folder) {
  folder.config = {{"model_type", "bert"},          {"hidden_size", kDim},
                   {"num_hidden_layers", 1},        {"num_attention_heads", 2},
                   {"intermediate_size", kInner},   {"vocab_size", kVocabulary},
                   {"max_position_embeddings", 16}, {"type_vocab_size", 2}};
  heed::Generator generator(6);
  const auto linear = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    folder.add(name + ".weight", {outputs, inputs}, generator);
    folder.add(name + ".bias", {outputs}, generator);
  };
  const auto norm = [&](const std::string& name) {
    folder.add(name + ".weight", {kDim}, generator);
    folder.add(name + ".bias", {kDim}, generator);
  };
  folder.add("embeddings.word_embeddings.weight", {kVocabulary, kDim}, generator);
  folder.add("embeddings.position_embeddings.weight", {16, kDim}, generator);
  folder.add("embeddings.token_type_embeddings.weight", {2, kDim}, generator);
  norm("embeddings.LayerNorm");
  const std::string at = "encoder.layer.0.";
  for (const char* part : {"attention.self.query", "attention.self.key", "attention.self.value"})
    linear(at + part, kDim, kDim);
  linear(at + "attention.output.dense", kDim, kDim);
  norm(at + "attention.output.LayerNorm");
  linear(at + "intermediate.dense", kInner, kDim);
  linear(at + "output.dense", kDim, kInner);
  norm(at + "output.LayerNorm");
}

// Llama in f64, one number at a time.
class ByFormula {
 public:
  ByFormula(const Folder& folder, std::int64_t window, bool causal = true)
      : folder_(folder), window_(window), causal_(causal) {}

  Rows logits(const std::vector<std::int64_t>& ids) const {
    Rows x;
    for (const std::int64_t id : ids) x.push_back(row("model.embed_tokens.weight", id));
    for (const std::string n : {"0", "1"}) layer("model.layers." + n + ".", x);
    for (Row& one : x) one = times("lm_head.weight", norm("model.norm.weight", one));
    return x;
  }

 private:
  Row row(const std::string& name, std::int64_t index) const {
    const Tensor& tensor = folder_.tensors.at(name);
    const auto values = tensor.values<float>();
    const auto columns = static_cast<std::size_t>(tensor.size(-1));
    const auto begin = values.begin() + index * static_cast<std::int64_t>(columns);
    return {begin, begin + static_cast<std::int64_t>(columns)};
  }
  Row times(const std::string& name, const Row& x) const {
    Row y(static_cast<std::size_t>(folder_.tensors.at(name).size(0)), 0);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Row weights = row(name, static_cast<std::int64_t>(i));
      for (std::size_t k = 0; k < x.size(); ++k) y[i] += weights[k] * x[k];
    }
    return y;
  }
  Row norm(const std::string& name, const Row& x) const {
    double squares = 0;
    for (const double one : x) squares += one * one;
    Row y = row(name, 0);
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] *= x[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    return y;
  }
  // Rotates pairs (i, i + d / 2) by position * theta^(-2 i / d).
  static void turn(Row& heads, std::size_t position) {
    for (std::size_t first = 0; first < heads.size(); first += kHeadDim)
      for (std::size_t i = 0; i < kHeadDim / 2; ++i) {
        const double angle = static_cast<double>(position) * std::pow(100.0, -2.0 * double(i) / kHeadDim);
        double &a = heads[first + i], &b = heads[first + i + kHeadDim / 2];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
  }
  void layer(const std::string& at, Rows& x) const {
    Rows query, key, value;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Row normed = norm(at + "input_layernorm.weight", x[i]);
      query.push_back(times(at + "self_attn.q_proj.weight", normed));
      key.push_back(times(at + "self_attn.k_proj.weight", normed));
      value.push_back(times(at + "self_attn.v_proj.weight", normed));
      turn(query.back(), i);
      turn(key.back(), i);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      add(x[i], times(at + "self_attn.o_proj.weight", attended(query[i], key, value, i)));
      const Row normed = norm(at + "post_attention_layernorm.weight", x[i]);
      Row hidden = times(at + "mlp.gate_proj.weight", normed);
      const Row up = times(at + "mlp.up_proj.weight", normed);
      for (std::size_t k = 0; k < hidden.size(); ++k) hidden[k] *= up[k] / (1 + std::exp(-hidden[k]));
      add(x[i], times(at + "mlp.down_proj.weight", hidden));
    }
  }
  // In a causal model a window is a number of keys; in others it is the distance to either side.
  bool sees(std::size_t i, std::size_t j) const {
    const auto distance = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(j);
    if (causal_) return distance >= 0 && (window_ == 0 || distance < window_);
    return window_ == 0 || std::abs(distance) <= window_;
  }
  Row attended(const Row& query, const Rows& key, const Rows& value, std::size_t i) const {
    Row output(query.size(), 0);
    for (std::size_t head = 0; head < kHeads; ++head) {
      const std::size_t of = head / (kHeads / kKvHeads) * kHeadDim, to = head * kHeadDim;
      Row weights(key.size(), 0);
      double sum = 0;
      for (std::size_t j = 0; j < key.size(); ++j) {
        if (!sees(i, j)) continue;
        double score = 0;
        for (std::size_t c = 0; c < kHeadDim; ++c) score += query[to + c] * key[j][of + c];
        weights[j] = std::exp(score / std::sqrt(double(kHeadDim)));
        sum += weights[j];
      }
      for (std::size_t j = 0; j < key.size(); ++j)
        for (std::size_t c = 0; c < kHeadDim; ++c) output[to + c] += weights[j] / sum * value[j][of + c];
    }
    return output;
  }
  static void add(Row& to, const Row& x) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += x[i];
  }

  const Folder& folder_;
  std::int64_t window_;
  bool causal_;
};

const std::vector<std::int64_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 10, 0};
TensorView view_of(const std::vector<std::int64_t>& ids) {
  return {ids.data(), {static_cast<std::int64_t>(ids.size())}};
}

void expect_near(const Tensor& found, const Rows& expected) {
  const auto values = found.values<float>();
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double right = expected[i / kVocabulary][i % kVocabulary];
    largest = std::max(largest, std::abs(right));
    apart = std::max(apart, std::abs(values[i] - right));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(apart, 100 * 0x1p-24 * largest);  // two layers of sums of at most 24 products, in f32
}

TEST(ModelFamilies, LlamaIsWhatItsFormulasSay) {
  Folder folder;
  fill_llama(folder);
  const Model model = folder.load();
  EXPECT_EQ(model.info().family, "llama");
  EXPECT_EQ(model.info().head_dim, kHeadDim);
  EXPECT_EQ(model.info().kv_heads, kKvHeads);
  EXPECT_EQ(model.info().parameters, 2 * 11 * 8 + 8 + 2 * (2 * 8 + (24 + 12 + 12 + 24) * 8 + 3 * 80));
  expect_near(model.logits(model.hidden_states(view_of(kIds))), ByFormula(folder, 0).logits(kIds));
}

TEST(ModelFamilies, MistralSeesAsManyKeysAsItsWindow) {
  Folder folder;
  fill_llama(folder);
  folder.config["model_type"] = "mistral";
  for (const std::int64_t window : {1, 3, 12}) {
    folder.config["sliding_window"] = window;
    const Model model = folder.load();
    expect_near(model.logits(model.hidden_states(view_of(kIds))), ByFormula(folder, window).logits(kIds));
  }
}

TEST(ModelFamilies, ADecoderThatIsNotCausalSeesWhatComesAfter) {
  Folder folder;
  fill_llama(folder);
  folder.config["model_type"] = "mistral";
  folder.config["is_causal"] = false;
  for (const std::int64_t window : {0, 1, 3, 12}) {
    folder.config["sliding_window"] = window == 0 ? Json() : Json(window);
    const Model model = folder.load();
    EXPECT_FALSE(model.info().causal);
    expect_near(model.logits(model.hidden_states(view_of(kIds))),
                ByFormula(folder, window, false).logits(kIds));
    EXPECT_EQ(message_of([&] { heed::ModelCache(model.info(), heed::CacheFormat::f32); }),
              "a model of family 'mistral' reads whole texts and has no cache");
  }
}

TEST(ModelFamilies, NameTheKeysThatNobodyKnows) {
  Folder folder;
  fill_llama(folder);
  folder.config["torch_dtype"] = "float32";
  for (const char* name : {"_model_name_or_path", "unk_token_id", "is_llama_config", "rope_interleaved",
                           "transformers.js_config"})
    folder.config[name] = 0;
  EXPECT_TRUE(folder.load().info().notes.empty());
  folder.config["layer_types"] = nullptr;
  EXPECT_TRUE(folder.load().info().notes.empty());
  folder.config["rope_scaling"] = {{"type", "linear"}, {"factor", 1}, {"section", 2}};
  folder.config["torch"] = 1;  // part of a known name
  folder.config["dtype torch_dtype"] = 1;
  for (const char* name : {"", "b", "c", "d", "e", "f", "h\n"}) folder.config[name] = nullptr;
  folder.config["attention_type"] = "softmax";
  EXPECT_EQ(folder.load().info().notes,
            std::vector<std::string>{
                "'" + (folder.files / "config.json") +
                "' has 'torch', 'dtype torch_dtype', '', 'b', 'c', 'd', 'e', 'f' and 3 more, which heed "
                "does not know and ignores"});
}

TEST(ModelFamilies, HaveTheSameBitsForEveryNumberOfThreads) {
  for (const auto fill : {fill_llama, fill_bert}) {
    Folder folder;
    fill(folder);
    const Model model = folder.load();
    const Tensor one = model.hidden_states(view_of(kIds), {}, 1),
                 three = model.hidden_states(view_of(kIds), {}, 3);
    EXPECT_TRUE(std::ranges::equal(one.values<float>(), three.values<float>()));
  }
}

TEST(ModelFamilies, TokensOneByOneThroughACacheGiveTheWholeText) {
  Folder folder;
  fill_llama(folder);
  folder.config["model_type"] = "mistral";
  folder.config["sliding_window"] = 3;
  const Model model = folder.load();
  heed::ModelCache cache(model.info(), heed::CacheFormat::f32);
  const Rows expected = ByFormula(folder, 3).logits(kIds);
  for (std::size_t i = 0; i < kIds.size(); ++i)
    expect_near(model.logits(model.hidden_states(view_of({kIds[i]}), cache)), {expected[i]});
  EXPECT_EQ(cache.length(), 12);
}

TEST(ModelFamilies, AnEncoderSeesWhatComesAfter) {
  Folder folder;
  fill_bert(folder);
  const Model model = folder.load();
  EXPECT_FALSE(model.info().causal);
  EXPECT_FALSE(model.info().predicts);
  const Tensor before = model.hidden_states(view_of({1, 2, 3})),
               after = model.hidden_states(view_of({1, 2, 4}));
  EXPECT_NE(before.at<float>(0, 0), after.at<float>(0, 0));
  EXPECT_EQ(message_of([&] { (void)model.logits(before); }),
            "a model of family 'bert' without a language-model head has no logits");
  EXPECT_EQ(message_of([&] { (void)model.hidden_states(view_of(std::vector<std::int64_t>(17, 1))); }),
            "tokens has length 17; at most 16, the context of the model, is expected");
}

TEST(ModelFamilies, EmbeddingsGiveLogitsWhereTheConfigurationTiesThem) {
  Folder folder;
  fill_llama(folder);
  folder.tensors.erase("lm_head.weight");
  EXPECT_EQ(folder.refusal(), "has no tensor lm_head.weight, which the model of its config.json needs");
  folder.config["tie_word_embeddings"] = true;
  const Model tied = folder.load();
  folder.tensors.insert_or_assign("lm_head.weight",
                                  Tensor::copy_of(folder.tensors.at("model.embed_tokens.weight")));
  folder.config["tie_word_embeddings"] = false;
  const Model own = folder.load();
  const Tensor hidden = tied.hidden_states(view_of(kIds));
  const Tensor of_embeddings = tied.logits(hidden), of_its_own = own.logits(hidden);
  EXPECT_TRUE(std::ranges::equal(of_embeddings.values<float>(), of_its_own.values<float>()));
}

TEST(ModelFamilies, TensorsMustBeThoseOfTheConfiguration) {
  Folder folder;
  fill_llama(folder);
  heed::Generator generator(7);
  folder.add("model.layers.1.mlp.up_proj.weight", {kInner, kDim + 1}, generator);
  EXPECT_EQ(
      folder.refusal(),
      "has a tensor model.layers.1.mlp.up_proj.weight of shape [10, 9]; [10, 8] is expected, as config.json "
      "says");
  folder.tensors.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(folder.refusal(),
            "has no tensor model.layers.1.mlp.up_proj.weight, which the model of its config.json needs");
  folder.add("model.layers.1.mlp.up_proj.weight", {kInner, kDim}, generator);
  folder.add("model.layers.1.mlp.up_proj.bias", {kInner}, generator);
  EXPECT_EQ(folder.refusal(),
            "has a tensor 'model.layers.1.mlp.up_proj.bias' that is not a parameter of the model of its "
            "config.json");
}

struct Wrong {
  const char* family;
  const char* changes;  // changes to config.json
  const char* message;
};

TEST(ModelFamilies, RefuseConfigurationsThatTheyDoNotUnderstand) {
  const Wrong all[] = {
      {"t5", "{}",
       "has model_type 't5'; heed runs bert, camembert, distilbert, electra, gemma, gemma2, gemma3_text, "
       "gpt2, "
       "gpt_neox, gpt_oss, granite, llama, "
       "mistral, mixtral, modernbert, mpnet, nomic_bert, olmo2, phi3, qwen2, qwen3, qwen3_moe, roberta, "
       "smollm3, "
       "stablelm, "
       "starcoder2, xlm-roberta. heed.transformers.look "
       "shows the "
       "heads of other models "
       "through "
       "transformers"},
      {"llama", R"({"quantization_config": {"quant_method": "gptq"}})",
       "has quantization_config; heed reads weights of f32, bf16 and f16"},
      {"llama", R"({"num_key_value_heads": 3})",
       "has num_attention_heads 4, which is not a multiple of num_key_value_heads 3"},
      {"llama", R"({"num_key_value_heads": 5})", "has num_key_value_heads 5; 1 to 4 is expected"},
      {"llama", R"({"num_attention_heads": 3, "head_dim": null, "num_key_value_heads": 1})",
       "has hidden_size 8, which is not a multiple of num_attention_heads 3"},
      {"llama", R"({"head_dim": 5})", "gives heads 5 numbers wide; rotary positions need an even number"},
      {"llama", R"({"hidden_act": "tanh"})", "has hidden_act 'tanh', which heed does not know"},
      {"llama", R"({"rms_norm_eps": -1})", "has rms_norm_eps beyond 0 to 1"},
      {"llama", R"({"rope_theta": 0})", "has rope_theta that is not above 0"},
      {"llama", R"({"num_hidden_layers": null})", "has num_hidden_layers null; a value is expected"},
      {"llama", R"({"partial_rotary_factor": 0.5})", "has partial_rotary_factor 0.5; heed's llama expects 1"},
      {"llama", R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "has partial_rotary_factor other than 1, which heed's llama does not support"},
      {"llama", R"({"rope_parameters": {"rope_type": null}})", "has rope_type null; a value is expected"},
      {"llama", R"({"rope_parameters": {"rope_theta": null}})", "has rope_theta null; a value is expected"},
      {"llama", R"({"sliding_window": 4})", "has sliding_window 4; heed's llama expects null"},
      {"llama", R"({"is_causal": 1})", "has is_causal that is neither true nor false"},
      {"llama", R"({"per_layer_config": {"0": {"hidden_act": "gelu"}}})",
       R"(has per_layer_config {"0":{"hidden_act":"gelu"}}; heed's llama expects {})"},
      {"llama",
       R"({"per_layer_config": "a \u0007 value that is longer than all that a sentence should hold of it"})",
       R"(has per_layer_config "a \u0007 value that is longer than all that a sentence should h…; heed's llama expects {})"},
      {"llama", R"({"rope_parameters": {"partial_rotary_factor": 2}})", "has partial_rotary_factor above 1"},
      {"llama", R"({"rope_scaling": {"type": "proportional", "factor": 4}})",
       "has rope_type 'proportional'; default, linear, llama3, yarn, longrope or dynamic is expected"},
      {"llama", R"({"head_dim": 2, "rope_parameters": {"rope_type": "dynamic", "factor": 2}})",
       "has rope_type 'dynamic' for 2 rotated numbers a head; at least 4 are expected"},
      {"llama", R"({"rope_parameters": {"rope_type": "yarn"}})", "has no factor"},
      {"llama",
       R"({"rope_parameters": {"rope_type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 2]}})",
       "has 2 numbers in long_factor; 3 are expected, one for each rotated pair"},
      {"llama", R"({"rope_parameters": {"rope_type": "longrope", "short_factor": [0], "long_factor": [1]}})",
       "has short_factor with an entry that is not a finite number above 0"},
      {"llama", R"({"rope_parameters": {"rope_type": "linear"}})", "has no factor"},
      {"llama", R"({"rope_parameters": {"rope_type": "linear", "factor": 0}})",
       "has factor that is not above 0"},
      {"llama", R"({"rope_parameters": {"rope_theta": 1}, "rope_scaling": {"factor": 1}})",
       "has both rope_scaling and rope_parameters; one is expected"},
      {"llama", R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                                        "high_freq_factor": 4}})",
       "has high_freq_factor that is not above low_freq_factor"},
      {"llama", R"({"rope_parameters": {"full_attention": {}}})",
       "has rope_parameters for each type of layer, which heed's llama does not support"},
      {"mistral", R"({"sliding_window": 0})", "has sliding_window 0; 1 to 4294967296 is expected"},
      {"mistral", R"({"layer_types": ["full_attention", "full_attention"]})",
       R"(has layer_types ["full_attention","full_attention"]; heed's mistral expects null)"},
      {"llama", R"({"attention_type": "sigmoid"})",
       R"(has attention_type "sigmoid"; heed's llama expects softmax attention, such as "full_attention")"},
      {"llama", R"({"layers_block_type": ["attention", "mamba"]})",
       R"(has layers_block_type "mamba"; heed's llama expects softmax attention, such as "full_attention")"},
      {"llama", R"({"attn_type_list": [1, 0]})",
       R"(has attn_type_list 1; heed's llama expects softmax attention, such as "full_attention")"},
      {"mistral", R"({"layer_types": ["full_attention", "linear_attention"]})",
       R"(has layer_types "linear_attention"; heed's mistral expects softmax attention, such as "full_attention")"},
      {"gpt2", R"({"attention_types": [[["global", "stick_breaking"], 2]]})",
       R"(has attention_types "stick_breaking"; heed's gpt2 expects softmax attention, such as "full_attention")"},
      {"bert", R"({"mixer_type": {"first": "forgetting"}})",
       R"(has mixer_type "forgetting"; heed's bert expects softmax attention, such as "full_attention")"},
      {"qwen2", R"({"layer_types": ["full_attention"]})", "has 1 layer_types for 2 layers"},
      {"qwen2", R"({"layer_types": ["full_attention", "chunked_attention"]})",
       "has a layer of type 'chunked_attention'; full_attention or sliding_attention is expected"},
      {"qwen3", R"({"layer_types": ["linear_attention", "full_attention"]})",
       "has a layer of type 'linear_attention'; full_attention or sliding_attention is expected"},
      {"qwen3", R"({"layer_types": ["full_attention", "sliding_attention"]})",
       "has a layer of type 'sliding_attention' and no sliding_window for it"},
      {"gemma3_text", R"({"sliding_window": null})",
       "has a layer of type 'sliding_attention' and no sliding_window for it"},
      {"gemma2", R"({"use_bidirectional_attention": true})",
       "has use_bidirectional_attention true; heed's gemma2 expects false"},
      {"gemma2", R"({"final_logit_softcapping": 0})", "has final_logit_softcapping that is not above 0"},
      {"gemma3_text", R"({"attn_logit_softcapping": 50})",
       "has attn_logit_softcapping 50; heed's gemma3_text expects null"},
      {"gemma3_text", R"({"rope_parameters": {"full_attention": {}}, "rope_scaling": {"factor": 1}})",
       "has both rope_scaling and rope_parameters; one is expected"},
      {"gemma3_text", R"({"query_pre_attn_scalar": 6, "rope_parameters": {"rope_type": "default"}})",
       "has rope_parameters other than full_attention and sliding_attention"},
      {"gemma3_text", R"({"query_pre_attn_scalar": 6, "rope_local_base_freq": -1})",
       "has rope_local_base_freq that is not above 0"},
      {"gpt_neox", R"({"rotary_pct": 0})", "has rotary_pct that is not above 0"},
      {"gpt_neox", R"({"rotary_pct": 2})", "has rotary_pct above 1"},
      {"gpt_neox", R"({"rope_theta": 5, "head_dim": null})", "has rope_theta 5; its other keys say 10000.0"},
      {"gpt_neox", R"({"rotary_emb_base": 0})", "has rotary_emb_base that is not above 0"},
      {"gpt_neox", R"({"rotary_pct": 0.5, "num_attention_heads": 8, "rope_theta": null, "head_dim": null})",
       "rotates 0 of 1 numbers a head; an even number from 2 on is expected"},
      {"bert", R"({"position_embedding_type": "relative_key"})",
       R"(has position_embedding_type "relative_key"; heed's bert expects "absolute")"},
      {"bert", R"({"is_decoder": true})", "has is_decoder true; heed's bert expects false"},
      {"bert", R"({"num_attention_heads": 3})",
       "has hidden_size 8, which is not a multiple of num_attention_heads 3"},
      {"distilbert", R"({"n_layers": 2, "n_heads": 4, "dim": 8, "num_attention_heads": 3})",
       "has dim 8, which is not a multiple of n_heads 3"},
  };
  for (const Wrong& wrong : all) {
    Folder folder;
    fill_llama(folder);
    folder.config["model_type"] = wrong.family;
    folder.config.update(Json::parse(wrong.changes));
    EXPECT_EQ(folder.refusal(), wrong.message) << wrong.family << " " << wrong.changes;
  }
}

}  // namespace
