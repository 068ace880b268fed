// Reading and writing parameters as safetensors files.
#include <algorithm>
#include <utility>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/layers.hpp"
#include "nn/checks.hpp"

namespace heed::nn {
namespace {

/// The location of a parameter in a file: all of tensor `name`, or its rows from `begin` on if it is shared.
struct Source {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t rows_of_all = -1;  ///< rows of the tensor if it is shared, else -1
};

template <class... Parts>
[[noreturn]] void fail(const std::string& path, const Parts&... message) {
  heed::detail::refuse(ErrorCode::io, path, ": ", message...);
}

// "layer.0.query.weight" → {"layer.0.", "query", "weight"}; `part` is "" if the name is not a projection's.
struct ProjectionName {
  std::string prefix;
  std::string part;
  std::string kind;
};

ProjectionName projection_name(const std::string& name) {
  for (const char* part : {"query", "key", "value"})
    for (const char* kind : {"weight", "bias"}) {
      const std::string ending = std::string(part) + "." + kind;
      if (!name.ends_with(ending)) continue;
      const std::string prefix = name.substr(0, name.size() - ending.size());
      if (prefix.empty() || prefix.back() == '.') return {prefix, part, kind};
    }
  return {};
}

std::int64_t rows_of(const std::vector<NamedParameter>& parameters, const std::string& name) {
  for (const NamedParameter& parameter : parameters)
    if (parameter.name == name && parameter.value->rank() > 0) return parameter.value->size(0);
  return 0;
}

// torch.nn.MultiheadAttention stacks the rows of queries, keys and values in in_proj_weight and in_proj_bias.
Source in_proj_source(const ProjectionName& name, const std::vector<NamedParameter>& parameters) {
  Source source{name.prefix + "in_proj_" + name.kind, 0, 0};
  bool before = true;
  for (const char* part : {"query", "key", "value"}) {
    before = before && name.part != part;
    const std::int64_t rows = rows_of(parameters, name.prefix + part + "." + name.kind);
    if (before) source.begin += rows;
    source.rows_of_all += rows;
  }
  return source;
}

bool has_parameter(const std::vector<NamedParameter>& parameters, const std::string& name) {
  return std::ranges::any_of(parameters,
                             [&](const NamedParameter& parameter) { return parameter.name == name; });
}

// Refuses a bias in the file that the layer lacks: ignoring it would silently change the numbers.
void refuse_unread_bias(const std::string& path, const io::SafetensorsReader& file,
                        const NamedParameter& parameter, const std::vector<NamedParameter>& parameters) {
  if (!parameter.name.ends_with("weight")) return;
  const std::string prefix = parameter.name.substr(0, parameter.name.size() - 6);
  std::vector<std::string> unread;
  if (!has_parameter(parameters, prefix + "bias")) unread.push_back(prefix + "bias");
  if (const ProjectionName name = projection_name(parameter.name); !name.part.empty()) {
    for (const char* added : {"bias_k", "bias_v"}) unread.push_back(name.prefix + added);
    if (!has_parameter(parameters, prefix + "bias")) unread.push_back(name.prefix + "in_proj_bias");
  }
  for (const std::string& name : unread)
    if (file.contains(name)) fail(path, "has a tensor ", name, ", which is not a parameter of the layer");
}

Source find(const std::string& path, const io::SafetensorsReader& file, const NamedParameter& parameter,
            const std::vector<NamedParameter>& parameters) {
  if (file.contains(parameter.name)) return {parameter.name};
  const ProjectionName name = projection_name(parameter.name);
  if (!name.part.empty()) {
    const Source stacked = in_proj_source(name, parameters);
    if (file.contains(stacked.name)) return stacked;
    const std::string alone = name.prefix + name.part.substr(0, 1) + "_proj_" + name.kind;
    if (file.contains(alone)) return {alone};
  }
  const std::string names = heed::detail::joined_texts(file.names(), ", ");
  fail(path, "has no tensor ", parameter.name, "; it has ", names.empty() ? "nothing" : names);
}

// Whether a file's shape holds the same rows split into heads: [heads, d, D] for [heads d, D].
bool is_cut_into_heads(const Dims& found, const Dims& rows) {
  std::int64_t joined = 0;
  if (found.size() != rows.size() + 1 || __builtin_mul_overflow(found[0], found[1], &joined)) return false;
  if (joined != rows[0]) return false;
  for (int axis = 1; axis < rows.size(); ++axis)
    if (found[axis + 1] != rows[axis]) return false;
  return true;
}

// The parameter's new value, in the parameter's shape and dtype.
Tensor read(const std::string& path, const io::SafetensorsReader& file, const Source& source,
            const NamedParameter& parameter) {
  const Tensor& now = *parameter.value;
  Dims expected = now.shape();
  if (source.rows_of_all >= 0) expected[0] = source.rows_of_all;
  const Dims found = file.shape(source.name);
  const bool heads = !projection_name(parameter.name).part.empty() && is_cut_into_heads(found, expected);
  if (found != expected && !heads)
    fail(path, "tensor ", source.name, " has shape ", to_string(found), "; ", to_string(expected),
         " is expected");
  if (!is_floating(file.dtype(source.name)))
    fail(path, "tensor ", source.name, " is ", name_of(file.dtype(source.name)),
         "; a floating dtype is expected");
  const Tensor whole = file.read(source.name).reshaped(expected);
  if (source.rows_of_all < 0) return Tensor::copy_of(whole, now.dtype());
  return Tensor::copy_of(whole.view().narrow(0, source.begin, now.size(0)), now.dtype());
}

}  // namespace

void save_parameters(const std::string& path, const std::vector<NamedParameter>& parameters) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  tensors.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters)
    tensors.emplace_back(parameter.name, detail::given(parameter).view());
  io::write_safetensors(path, tensors);
}

void load_parameters(const std::string& path, const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& parameter : parameters) (void)detail::given(parameter);
  const io::SafetensorsReader file(path);
  std::vector<Tensor> values;
  values.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters)
    values.push_back(read(path, file, find(path, file, parameter, parameters), parameter));
  for (const NamedParameter& parameter : parameters) refuse_unread_bias(path, file, parameter, parameters);
  // Copies into the existing memory, so that views of it stay valid.
  for (std::size_t i = 0; i < parameters.size(); ++i) copy(values[i], *parameters[i].value);
}

}  // namespace heed::nn
