#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/fault.hpp"
#include "model/gguf/gguf_model.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::GgufFile;
using io::detail::GgufTensor;

struct NameOfTensor {
  std::string_view gguf, safetensors;
};
constexpr std::array<NameOfTensor, 3> kOutside = {
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};
constexpr std::array<NameOfTensor, 11> kInBlocks = {{{"attn_norm", "input_layernorm"},
                                                     {"attn_q", "self_attn.q_proj"},
                                                     {"attn_k", "self_attn.k_proj"},
                                                     {"attn_v", "self_attn.v_proj"},
                                                     {"attn_output", "self_attn.o_proj"},
                                                     {"attn_q_norm", "self_attn.q_norm"},
                                                     {"attn_k_norm", "self_attn.k_norm"},
                                                     {"ffn_norm", "post_attention_layernorm"},
                                                     {"ffn_gate", "mlp.gate_proj"},
                                                     {"ffn_up", "mlp.up_proj"},
                                                     {"ffn_down", "mlp.down_proj"}}};

// The format for ggml's type number; nullptr for types that heed does not read.
const WeightFormat* format_of(std::uint32_t type) {
  switch (type) {
    case 0:
      return &kStoredF32;
    case 1:
      return &kStoredF16;
    case 2:
      return &kStoredQ4_0;
    case 8:
      return &kStoredQ8_0;
    case 12:
      return &kStoredQ4K;
    case 14:
      return &kStoredQ6K;
    case 30:
      return &kStoredBf16;
    default:
      return nullptr;
  }
}

// "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight"; empty for unknown names.
std::string safetensors_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string ending(name.substr(dot));
  std::string_view stem = name.substr(0, dot);
  if (ending != ".weight" && ending != ".bias") return {};
  if (!stem.starts_with("blk.")) {
    for (const NameOfTensor& one : kOutside)
      if (one.gguf == stem) return std::string(one.safetensors) + ending;
    return {};
  }
  stem.remove_prefix(4);
  const std::size_t end = stem.find('.');
  if (end == std::string_view::npos) return {};
  for (const NameOfTensor& one : kInBlocks)
    if (one.gguf == stem.substr(end + 1))
      return "model.layers." + std::string(stem.substr(0, end)) + "." + std::string(one.safetensors) + ending;
  return {};
}

// The inverse: "model.layers.3.self_attn.q_proj.weight" → "blk.3.attn_q.weight".
std::string gguf_name(const std::string& name) {
  constexpr std::string_view kBlock = "model.layers.";
  const std::size_t dot = name.rfind('.');
  const std::string ending = name.substr(dot), stem = name.substr(0, dot);
  for (const NameOfTensor& one : kOutside)
    if (one.safetensors == stem) return std::string(one.gguf) + ending;
  const std::size_t end = stem.find('.', kBlock.size());
  for (const NameOfTensor& one : kInBlocks)
    if (end != std::string::npos && stem.compare(end + 1, stem.npos, one.safetensors) == 0)
      return "blk." + stem.substr(kBlock.size(), end - kBlock.size()) + "." + std::string(one.gguf) + ending;
  return name;
}

// Reorders the rows of each head from 0, d/2, 1, d/2 + 1, … to 0, 1, 2, ….
std::shared_ptr<Tensor> rows_in_halves(const std::byte* data, std::int64_t rows, std::int64_t row_bytes,
                                       std::int64_t heads) {
  auto made = std::make_shared<Tensor>(Tensor::uninitialized({rows * row_bytes}, DType::u8));
  auto* to = static_cast<std::byte*>(made->mutable_view().data());
  const std::int64_t width = rows / heads, half = width / 2;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / width, place = row % width;
    const std::int64_t from = head * width + place % half * 2 + place / half;
    std::memcpy(to + row * row_bytes, data + from * row_bytes, static_cast<std::size_t>(row_bytes));
  }
  return made;
}

class GgufTensors {
 public:
  GgufTensors(const GgufFile& file, const nlohmann::ordered_json& config, Weights& weights)
      : file_(file), weights_(weights), interleaved_(config["model_type"] == "llama") {
    heads_ = config.value("num_attention_heads", std::int64_t{0});
    kv_heads_ = config.value("num_key_value_heads", heads_);
  }

  void add(const GgufTensor& tensor) {
    const WeightFormat* format = format_of(tensor.type);
    const std::string named = "has a tensor " + io::detail::printable(tensor.name);
    if (format == nullptr)
      fail(file_.subject(), named + " of type " + std::to_string(tensor.type) +
                                "; heed reads F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K");
    if (tensor.sizes[0] % format->values != 0)
      fail(file_.subject(), named + " with rows of " + std::to_string(tensor.sizes[0]) +
                                " numbers, which is not a multiple of " + std::to_string(format->values));
    const auto blocks = static_cast<std::uint64_t>(tensor.count / format->values);
    if (blocks > (file_.size() - tensor.offset) / static_cast<std::uint64_t>(format->bytes))
      fail(file_.subject(), named + " that ends beyond the end of the file");
    claim(tensor.offset, blocks * static_cast<std::uint64_t>(format->bytes), named);
    if (tensor.name == "rope_freqs.weight") return;  // the configuration has read it
    const std::string name = safetensors_name(tensor.name);
    if (name.empty()) fail(file_.subject(), named + " that is not a parameter of the model of its metadata");
    Dims shape;
    for (std::size_t i = tensor.sizes.size(); i-- > 0;) shape.push_back(tensor.sizes[i]);
    weights_.add(name, {placed(name, tensor, *format), format, shape, file_.subject()});
  }

 private:
  // No byte belongs to two tensors, so all copies together are no larger than the file.
  void claim(std::uint64_t begin, std::uint64_t bytes, const std::string& named) {
    const auto after = claimed_.lower_bound(begin);
    if ((after != claimed_.end() && after->first < begin + bytes) ||
        (after != claimed_.begin() && std::prev(after)->second > begin))
      fail(file_.subject(), named + " that shares bytes with another");
    claimed_.emplace(begin, begin + bytes);
  }

  const void* placed(const std::string& name, const GgufTensor& tensor, const WeightFormat& format) {
    const std::byte* data = file_.data() + tensor.offset;
    const bool query = name.find(".q_proj.") != std::string::npos,
               key = name.find(".k_proj.") != std::string::npos;
    if (!interleaved_ || (!query && !key)) return data;
    const std::int64_t heads = query ? heads_ : kv_heads_,
                       rows = tensor.sizes.size() == 1 ? tensor.count : tensor.sizes[1];
    // Other shapes are refused when the model takes the weights.
    if (heads < 1 || tensor.sizes.size() > 2 || rows % heads != 0 || rows / heads % 2 != 0) return data;
    if (tensor.sizes.size() == 1 && format.values != 1) return data;
    auto copy = rows_in_halves(data, rows, bytes_of(format, tensor.count) / rows, heads);
    const void* at = copy->view().data();
    weights_.keep(std::move(copy));
    return at;
  }

  const GgufFile& file_;
  Weights& weights_;
  bool interleaved_;
  std::int64_t heads_ = 0, kv_heads_ = 0;
  std::map<std::uint64_t, std::uint64_t> claimed_;  // begin and end
};

}  // namespace

std::shared_ptr<Weights> gguf_weights(const GgufFile& file, const nlohmann::ordered_json& config) {
  auto weights = std::make_shared<Weights>(file.subject(), "metadata", gguf_name);
  weights->keep(file.memory());
  GgufTensors tensors(file, config, *weights);
  for (const GgufTensor& tensor : file.tensors()) tensors.add(tensor);
  return weights;
}

}  // namespace heed::detail
