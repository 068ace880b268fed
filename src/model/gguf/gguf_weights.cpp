#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "io/fault.hpp"
#include "model/files/config.hpp"
#include "model/gguf/ggml_types.hpp"
#include "model/gguf/gguf_architecture.hpp"
#include "model/gguf/gguf_model.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::GgufFile;
using io::detail::GgufTensor;

// A copy whose row r is the file's row place(r).
template <class Place>
std::shared_ptr<Tensor> reordered(const std::byte* data, std::int64_t rows, std::int64_t row_bytes,
                                  Place place) {
  auto made = std::make_shared<Tensor>(Tensor::uninitialized({rows * row_bytes}, DType::u8));
  auto* to = static_cast<std::byte*>(made->mutable_view().data());
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * row_bytes, data + place(row) * row_bytes, static_cast<std::size_t>(row_bytes));
  return made;
}

class GgufTensors {
 public:
  GgufTensors(const GgufFile& file, const GgufArchitecture& architecture,
              const nlohmann::ordered_json& config, Weights& weights)
      : file_(file), architecture_(architecture), weights_(weights) {
    heads_ = config.value("num_attention_heads", std::int64_t{0});
    kv_heads_ = config.value("num_key_value_heads", heads_);
  }

  void add(const GgufTensor& tensor) {
    const WeightFormat* format = format_of_ggml_type(tensor.type);
    const std::string named = "has a tensor " + io::detail::printable(tensor.name);
    if (format == nullptr)
      fail(file_.subject(), named, " of type ", name_of_ggml_type(tensor.type), "; heed reads ",
           readable_ggml_types());
    if (tensor.sizes[0] % format->values != 0)
      fail(file_.subject(), named, " with rows of ", tensor.sizes[0], " numbers, which is not a multiple of ",
           format->values);
    const auto blocks = static_cast<std::uint64_t>(tensor.count / format->values);
    if (blocks > (file_.size() - tensor.offset) / static_cast<std::uint64_t>(format->bytes))
      fail(file_.subject(), named, " that ends beyond the end of the file");
    claim(tensor.offset, blocks * static_cast<std::uint64_t>(format->bytes), named);
    for (const char* read : {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
      if (tensor.name == read) return;  // by the configuration
    const std::string name = safetensors_name(architecture_, tensor.name);
    if (name.empty()) fail(file_.subject(), named, " that is not a parameter of the model of its metadata");
    if (const std::size_t star = name.find('*'); star != name.npos)
      return add_experts(name, star, tensor, *format, named);
    Dims shape;
    for (std::size_t i = tensor.sizes.size(); i-- > 0;) shape.push_back(tensor.sizes[i]);
    if (architecture_.norm_offset != 0 && name.ends_with("norm.weight"))
      weights_.add(name, {without_offset(tensor, *format, named), &kStoredF32, shape, file_.subject()});
    else
      weights_.add(name, {placed(name, tensor, *format), format, shape, file_.subject()});
  }

 private:
  // No byte belongs to two tensors, so all copies together are no larger than the file.
  void claim(std::uint64_t begin, std::uint64_t bytes, const std::string& named) {
    const auto after = claimed_.lower_bound(begin);
    if ((after != claimed_.end() && after->first < begin + bytes) ||
        (after != claimed_.begin() && std::prev(after)->second > begin))
      fail(file_.subject(), named, " that shares bytes with another");
    claimed_.emplace(begin, begin + bytes);
  }

  // A matrix of each expert, [E, N, K], or a bias, [E, N].
  void add_experts(const std::string& name, std::size_t star, const GgufTensor& tensor,
                   const WeightFormat& format, const std::string& named) {
    const std::size_t sizes = name.ends_with(".bias") ? 2 : 3;
    if (tensor.sizes.size() != sizes)
      fail(file_.subject(), named, " of ", tensor.sizes.size(), " sizes; ", sizes,
           " are expected for all experts");
    const std::int64_t experts = tensor.sizes.back();
    if (experts > kMaxExperts)
      fail(file_.subject(), named, " of ", experts, " experts; at most ", kMaxExperts, " are expected");
    const Dims shape = sizes == 2 ? Dims{tensor.sizes[0]} : Dims{tensor.sizes[1], tensor.sizes[0]};
    for (std::int64_t e = 0; e < experts; ++e)
      weights_.add(std::string(name).replace(star, 1, std::to_string(e)),
                   {file_.data() + tensor.offset + e * bytes_of(format, tensor.count / experts), &format,
                    shape, file_.subject()});
  }

  // The weights of a norm without the architecture's offset, in f32.
  const void* without_offset(const GgufTensor& tensor, const WeightFormat& format, const std::string& named) {
    if (format.values != 1)
      fail(file_.subject(), named, " of type ", format.name, "; F32, F16 or BF16 is expected for a norm");
    auto copy = std::make_shared<Tensor>(Tensor::uninitialized({tensor.count}, DType::f32));
    auto* to = copy->mutable_view().data_as<float>();
    read_numbers(format, file_.data() + tensor.offset, tensor.count, to);
    for (std::int64_t i = 0; i < tensor.count; ++i) to[i] -= architecture_.norm_offset;
    weights_.keep(copy);
    return to;
  }

  const void* placed(const std::string& name, const GgufTensor& tensor, const WeightFormat& format) {
    const std::byte* data = file_.data() + tensor.offset;
    const std::int64_t rows = tensor.sizes.size() == 1 ? tensor.count : tensor.sizes[1];
    if (tensor.sizes.size() > 2) return data;  // refused when the model takes the weights
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool query = has(".q_proj."), key = has(".k_proj.");
    const std::int64_t heads = key ? kv_heads_ : heads_;
    const std::int64_t row_bytes = bytes_of(format, tensor.count) / rows;
    const bool moves =
        architecture_.interleaved ? query || key : architecture_.parts_in_turn && has(".query_key_value.");
    if (tensor.sizes.size() == 1 && format.values != 1) {
      if (moves)
        fail(file_.subject(), "has the bias ", tensor.name, " of type ", format.name,
             ", whose numbers have another order here; F32, F16 or BF16 is expected");
      return data;
    }
    if (!moves || heads < 1 || heads > rows) return data;
    std::shared_ptr<Tensor> copy;
    if (architecture_.interleaved && rows % (2 * heads) == 0) {
      const std::int64_t width = rows / heads, half = width / 2;
      copy = reordered(data, rows, row_bytes, [&](std::int64_t row) {
        return row / width * width + row % half * 2 + row % width / half;
      });
    } else if (architecture_.parts_in_turn && rows % (3 * heads) == 0) {
      const std::int64_t width = rows / heads / 3;
      copy = reordered(data, rows, row_bytes, [&](std::int64_t row) {
        const std::int64_t head = row / (3 * width), part = row / width % 3;
        return (part * heads + head) * width + row % width;
      });
    }
    if (copy == nullptr) return data;
    const void* at = copy->view().data();
    weights_.keep(std::move(copy));
    return at;
  }

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  Weights& weights_;
  std::int64_t heads_ = 0, kv_heads_ = 0;
  std::map<std::uint64_t, std::uint64_t> claimed_;  // begin and end
};

}  // namespace

std::shared_ptr<Weights> gguf_weights(std::span<const GgufFile> parts, const nlohmann::ordered_json& config) {
  const GgufArchitecture& architecture = architecture_of(parts.front());
  const auto name_in_file = [&architecture](const std::string& name) {
    return gguf_name(architecture, name);
  };
  auto weights = std::make_shared<Weights>(parts.front().subject(), "metadata", name_in_file);
  for (const GgufFile& file : parts) {
    weights->keep(file.memory());
    GgufTensors tensors(file, architecture, config, *weights);
    for (const GgufTensor& tensor : file.tensors()) tensors.add(tensor);
  }
  return weights;
}

}  // namespace heed::detail
