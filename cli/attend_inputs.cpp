#include "attend_inputs.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "command.hpp"
#include "heed/io/kv_cache.hpp"
#include "tensor_argument.hpp"

namespace heed::cli {
namespace {

struct InputFile {
  const char* option;
  std::string AttendArguments::*text;
  std::optional<TensorView> AttentionOptions::*view;  // nullptr: not a member of AttentionOptions
  Along along{};
};

constexpr std::array<InputFile, 16> kInputFiles = {{
    {"--query", &AttendArguments::query, nullptr},
    {"--key", &AttendArguments::key, nullptr},
    {"--value", &AttendArguments::value, nullptr},
    {"--mask", &AttendArguments::mask, &AttentionOptions::mask, kAlongRows},
    {"--bias", &AttendArguments::bias, &AttentionOptions::bias, kAlongRows},
    {"--alibi-slopes", &AttendArguments::alibi_slopes, &AttentionOptions::alibi_slopes},
    {"--decay", &AttendArguments::decay, &AttentionOptions::decay},
    {"--sinks", &AttendArguments::sinks, &AttentionOptions::sinks},
    {"--kv-lengths", &AttendArguments::kv_lengths, &AttentionOptions::kv_lengths},
    {"--query-segments", &AttendArguments::query_segments, &AttentionOptions::query_segments},
    {"--key-segments", &AttendArguments::key_segments, &AttentionOptions::key_segments},
    {"--differential", &AttendArguments::lambda, nullptr},
    {"--gate", &AttendArguments::gate, nullptr},
    {"--grad-output", &AttendArguments::by_output, nullptr},
    {"--grad-lse", &AttendArguments::by_lse, nullptr},
    {"--grad-weights", &AttendArguments::by_weights, nullptr},
}};

class Reader {
 public:
  Reader(const AttendArguments& arguments, const TensorReading& read, AttendInputs& inputs)
      : arguments_(arguments), read_(read), inputs_(inputs) {
    inputs_.tensors.reserve(kInputFiles.size());
  }

  // Query, key or value, in the dtype to compute in: --dtype, or the query's.
  TensorView read_main(const char* option, const std::string& text, const Along& along, Dims& whole) {
    ReadTensor found = read(option, text, along);
    const DType stored = found.view().dtype();
    whole = found.whole;
    if (arguments_.length_first && (whole.size() == 3 || whole.size() == 4))
      std::swap(whole[whole.size() - 3], whole[whole.size() - 2]);
    if (!is_floating(stored) && !arguments_.dtype) {
      refuse_usage(option, " has dtype ", name_of(stored),
                   "; f64, f32, f16 or bf16 is expected (--dtype f32 would convert it)");
    }
    if (!dtype_) dtype_ = arguments_.dtype.value_or(stored);
    const TensorView view = keep_as(*dtype_, std::move(found));
    return arguments_.length_first ? swap_layout(view) : view;
  }

  // Reads the gradient of the loss with respect to lse or weights, in f64 for f64 inputs, otherwise in f32.
  std::optional<TensorView> read_by_summary(const char* option, const std::string& text, const Along& along) {
    if (text.empty()) return std::nullopt;
    return keep_as(dtype_ == DType::f64 ? DType::f64 : DType::f32, read(option, text, along));
  }

  TensorView read_beside(const char* option, const std::string& text, const Along& along) {
    ReadTensor found = read(option, text, along);
    const DType stored = found.view().dtype();
    const bool is_mask = option == std::string_view("--mask");
    if (is_mask && is_floating(stored)) {
      refuse_usage("--mask has dtype ", name_of(stored),
                   "; bool is expected (numbers to add to the scores are a --bias)");
    }
    return keep_as(is_mask && stored == DType::u8 ? DType::boolean : stored, std::move(found));
  }

  // A number becomes a factor for each head.
  std::optional<TensorView> read_lambda() {
    if (!arguments_.lambda.empty()) return read_beside("--differential", arguments_.lambda, {});
    if (!arguments_.factor) return std::nullopt;
    const TensorView& query = inputs_.query;
    Tensor factors({query.rank() == 4 ? query.size(1) / 2 : 1}, DType::f64);
    for (double& factor : factors.values<double>()) factor = *arguments_.factor;
    return keep(std::move(factors));
  }

 private:
  ReadTensor read(const char* option, const std::string& text, const Along& along) {
    if (read_ && along.sequence != Along::nothing) return read_(option, text, along);
    Tensor tensor = read_tensor(tensor_argument(option, text));
    const Dims whole = tensor.shape();
    return {std::move(tensor), whole};
  }
  TensorView keep_as(DType dtype, ReadTensor found) {
    if (found.view().dtype() != dtype) return keep(Tensor::copy_of(found.view(), dtype));
    return found.elsewhere ? *found.elsewhere : keep(std::move(found.tensor));
  }
  TensorView keep(Tensor tensor) { return inputs_.tensors.emplace_back(std::move(tensor)); }

  const AttendArguments& arguments_;
  const TensorReading& read_;
  AttendInputs& inputs_;
  std::optional<DType> dtype_;
};

// The output that a gate multiplies is known before the call, so it is checked before the work.
void check_gate(const AttendArguments& arguments, const AttendInputs& inputs) {
  const TensorView &gate = *inputs.gate, &query = inputs.query;
  if (query.rank() < 2 || inputs.value_shape.size() < 2) return;  // attention() refuses them
  if (arguments.length_first && gate.rank() == 2 && query.rank() > 2)
    refuse_usage("--gate has shape ", gate.shape(),
                 "; one, three or four axes are expected with --layout blhd");
  Dims output;
  for (int axis = -query.rank(); axis < -1; ++axis)
    output.push_back(axis == -3 && inputs.lambda ? query.size(axis) / 2 : query.size(axis));
  output.push_back(inputs.value_shape.back());
  bool fits = gate.rank() <= query.rank();
  for (int axis = 1; fits && axis <= gate.rank(); ++axis)
    fits = gate.size(-axis) == 1 || gate.size(-axis) == output[output.size() - axis];
  if (!fits)
    refuse_usage("--gate has shape ", gate.shape(), "; a shape that broadcasts to ", output, " is expected");
  if (!is_floating(gate.dtype()))
    refuse_usage("--gate has dtype ", name_of(gate.dtype()), "; f64, f32, f16 or bf16 is expected");
  if (inputs.by_output && inputs.by_output->shape() != output)
    refuse_usage("--grad-output has shape ", inputs.by_output->shape(), "; ", output, " is expected");
}

// Over a cache, the keys of a mask or an index are the rows that the sequences hold.
void read_cache(const AttendArguments& arguments, AttendInputs& inputs) {
  const KvCache& cache = inputs.cache.emplace(io::read_kv_cache(arguments.cache));
  std::vector<std::int64_t> sequences = arguments.cache_sequences;
  inputs.which.sequences = arguments.cache_sequences;
  if (sequences.empty()) {
    sequences.resize(static_cast<std::size_t>(cache.sequences()));
    std::iota(sequences.begin(), sequences.end(), std::int64_t{0});
  }
  const bool is_packed = !arguments.query_segments.empty();
  std::int64_t keys = 0;
  for (const std::int64_t one : sequences) {
    if (one < 0 || one >= cache.sequences())
      refuse_usage("--cache-sequences has ", one, "; numbers below the cache's ",
                   heed::detail::counted(cache.sequences(), "sequence"), " are expected");
    keys = is_packed ? keys + cache.rows(one) : std::max(keys, cache.rows(one));
  }
  const std::int64_t batch = is_packed ? 1 : std::ssize(sequences);
  inputs.key_shape = {batch, cache.kv_heads(), keys, cache.head_dim()};
  inputs.value_shape = {batch, cache.kv_heads(), keys, cache.value_dim()};
  if (arguments.masks.index_query.empty()) return;
  for (const std::int64_t one : sequences)
    if (cache.rows(one) != keys || cache.length(one) != keys)
      refuse_usage("--index-query is given with --cache, whose sequence ", one, " holds ",
                   heed::detail::counted(cache.rows(one), "row"), " of ", cache.length(one),
                   "; sequences of one length without evicted rows are expected");
  inputs.options.align = Align::bottom_right;  // for the index; a cache itself knows no other
}

}  // namespace

std::vector<NamedFile> attend_input_files(const AttendArguments& arguments) {
  std::vector<NamedFile> files;
  const char* from_standard_input = nullptr;
  for (const InputFile& input : kInputFiles) {
    const std::string& text = arguments.*input.text;
    if (text.empty()) continue;
    files.push_back({input.option, tensor_argument(input.option, text).file});
    if (text != "-") continue;
    if (from_standard_input != nullptr) {
      refuse_usage(from_standard_input, " and ", input.option,
                   " are both '-'; standard input holds only one tensor");
    }
    from_standard_input = input.option;
  }
  if (!arguments.cache.empty()) files.push_back({"--cache", arguments.cache});
  for (NamedFile& file : mask_input_files(arguments.masks)) files.push_back(std::move(file));
  return files;
}

AttendInputs read_attend_inputs(const AttendArguments& arguments, const TensorReading& read) {
  AttendInputs inputs;
  inputs.options = arguments.options;
  Reader reader(arguments, read, inputs);
  inputs.query = reader.read_main("--query", arguments.query, kAlongQueries, inputs.query_shape);
  if (arguments.cache.empty()) {
    inputs.key = reader.read_main("--key", arguments.key, kAlongKeys, inputs.key_shape);
    inputs.value = reader.read_main("--value", arguments.value, kAlongKeys, inputs.value_shape);
  } else {
    read_cache(arguments, inputs);
  }
  inputs.lambda = reader.read_lambda();
  if (!arguments.gate.empty()) {
    const TensorView gate = reader.read_beside("--gate", arguments.gate, {});
    inputs.gate = arguments.length_first ? swap_layout(gate) : gate;
  }
  if (Dims shape; !arguments.by_output.empty())
    inputs.by_output = reader.read_main("--grad-output", arguments.by_output, kAlongQueries, shape);
  if (inputs.gate) check_gate(arguments, inputs);
  inputs.by_lse =
      reader.read_by_summary("--grad-lse", arguments.by_lse, {.sequence = Along::queries, .axis = -1});
  inputs.by_weights =
      reader.read_by_summary("--grad-weights", arguments.by_weights, {.sequence = Along::queries});
  for (const InputFile& input : kInputFiles) {
    const std::string& text = arguments.*input.text;
    if (input.view != nullptr && !text.empty())
      inputs.options.*input.view = reader.read_beside(input.option, text, input.along);
  }
  const Dims &query = inputs.query_shape, &key = inputs.key_shape;
  if (query.size() >= 2 && key.size() >= 2)  // otherwise attention() throws
    read_masks(arguments.masks, query[query.size() - 2], key[key.size() - 2], inputs.options);
  return inputs;
}

}  // namespace heed::cli
