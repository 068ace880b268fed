// Writes GGUF files byte by byte, so that tests can break any part of them.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::test {

/// `bytes` bytes of `value`, in little-endian order.
inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
  return text;
}
inline std::string of_f32(float value) { return little(std::bit_cast<std::uint32_t>(value), 4); }
inline std::string of_f64(double value) { return little(std::bit_cast<std::uint64_t>(value), 8); }
inline std::string counted(std::string_view text) { return little(text.size(), 8) + std::string(text); }

// Metadata values: the type and then the value.
inline std::string u32_value(std::uint32_t value) { return little(4, 4) + little(value, 4); }
inline std::string f32_value(float value) { return little(6, 4) + of_f32(value); }
inline std::string flag_value(bool value) { return little(7, 4) + little(value ? 1 : 0, 1); }
inline std::string text_value(std::string_view text) { return little(8, 4) + counted(text); }
inline std::string list_value(std::uint32_t kind, std::uint64_t count, const std::string& bytes) {
  return little(9, 4) + little(kind, 4) + little(count, 8) + bytes;
}
inline std::string texts_value(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) bytes += counted(text);
  return list_value(8, texts.size(), bytes);
}
inline std::string f32s_value(const std::vector<float>& numbers) {
  std::string bytes;
  for (const float number : numbers) bytes += of_f32(number);
  return list_value(6, numbers.size(), bytes);
}
inline std::string i32s_value(const std::vector<std::uint32_t>& numbers) {
  std::string bytes;
  for (const std::uint32_t number : numbers) bytes += little(number, 4);
  return list_value(5, numbers.size(), bytes);
}

struct GgufTensorBytes {
  std::string name;
  std::vector<std::uint64_t> sizes;  ///< innermost axis first
  std::uint32_t type = 0;
  std::string data;
  std::optional<std::uint64_t> offset = {};  ///< by default, directly after the previous tensor
};

struct GgufBytes {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count = {}, value_count = {};  ///< by default, the actual counts
  std::uint64_t alignment = 32;
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<GgufTensorBytes> tensors;

  /// Replaces the value of that name, or appends it.
  void set(const std::string& name, std::string value) {
    for (auto& [own, old] : values)
      if (own == name) {
        old = std::move(value);
        return;
      }
    values.emplace_back(name, std::move(value));
  }
  void drop(const std::string& name) {
    std::erase_if(values, [&](const auto& one) { return one.first == name; });
    std::erase_if(tensors, [&](const auto& one) { return one.name == name; });
  }
  GgufTensorBytes& tensor(const std::string& name) {
    for (GgufTensorBytes& one : tensors)
      if (one.name == name) return one;
    return tensors.emplace_back(GgufTensorBytes{name, {}, 0, {}});
  }

  /// The file, without padding after the last tensor.
  [[nodiscard]] std::string bytes() const {
    std::string header = magic + little(version, 4) + little(tensor_count.value_or(tensors.size()), 8) +
                         little(value_count.value_or(values.size()), 8);
    for (const auto& [name, value] : values) header += counted(name) + value;
    std::string data;
    for (const GgufTensorBytes& one : tensors) {
      header += counted(one.name) + little(one.sizes.size(), 4);
      for (const std::uint64_t size : one.sizes) header += little(size, 8);
      if (!one.data.empty()) pad(data);
      header += little(one.type, 4) + little(one.offset.value_or(data.size()), 8);
      data += one.data;
    }
    if (!data.empty()) pad(header);
    return header + data;
  }

 private:
  void pad(std::string& text) const { text.resize((text.size() + alignment - 1) / alignment * alignment); }
};

/// F32 numbers: `first`, `first` + 1, ….
inline std::string f32_run(float first, std::uint64_t count) {
  std::string bytes;
  for (std::uint64_t i = 0; i < count; ++i) bytes += of_f32(first + static_cast<float>(i));
  return bytes;
}

/// A Llama of one layer with 2 query heads of dimension 4, one key head and 3 tokens.
inline GgufBytes gguf_llama() {
  GgufBytes file;
  file.set("general.architecture", text_value("llama"));
  file.set("llama.block_count", u32_value(1));
  file.set("llama.context_length", u32_value(16));
  file.set("llama.embedding_length", u32_value(8));
  file.set("llama.feed_forward_length", u32_value(4));
  file.set("llama.attention.head_count", u32_value(2));
  file.set("llama.attention.head_count_kv", u32_value(1));
  file.set("llama.attention.layer_norm_rms_epsilon", f32_value(1e-5f));
  float first = 0;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> sizes) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : sizes) count *= size;
    file.tensors.push_back({name, std::move(sizes), 0, f32_run(first, count)});
    first += static_cast<float>(count);
  };
  add("token_embd.weight", {8, 3});
  add("blk.0.attn_norm.weight", {8});
  add("blk.0.attn_q.weight", {8, 8});
  add("blk.0.attn_k.weight", {8, 4});
  add("blk.0.attn_v.weight", {8, 4});
  add("blk.0.attn_output.weight", {8, 8});
  add("blk.0.ffn_norm.weight", {8});
  add("blk.0.ffn_gate.weight", {8, 4});
  add("blk.0.ffn_up.weight", {8, 4});
  add("blk.0.ffn_down.weight", {4, 8});
  add("output_norm.weight", {8});
  add("output.weight", {8, 3});
  return file;
}

}  // namespace heed::test
