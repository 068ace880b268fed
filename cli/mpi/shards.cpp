#include "mpi/shards.hpp"

#include <array>

#include "command.hpp"
#include "heed/attention/part.hpp"
#include "heed/io/shards.hpp"
#include "tensor_argument.hpp"

namespace heed::cli {
namespace {

constexpr std::array<double, 1> kAnywhere{};

TensorView repeated(const Dims& shape, DType dtype) {
  Dims strides = shape;
  for (int axis = 0; axis < shape.size(); ++axis) strides[axis] = 0;
  return {kAnywhere.data(), dtype, shape, strides};
}

std::int64_t size_from_end(const Dims& shape, int from_end) {
  return shape.size() < from_end ? 1 : shape[shape.size() - from_end];
}

}  // namespace

AttendInputs ShardReader::read() {
  return read_attend_inputs(arguments_, [this](const std::string& option, const std::string& text,
                                               const Along& along) { return read(option, text, along); });
}

distributed::Layout ShardReader::layout() const {
  return {sharding_of_length(lengths_.at("--query")), sharding_of_length(lengths_.at("--key"))};
}

Sharding ShardReader::sharding_of_length(std::int64_t length) const {
  return sharding_of(arguments_.over_ranks, arguments_.options.causal, length, session_.comm().size());
}

ReadTensor ShardReader::read(const std::string& option, const std::string& text, const Along& along) {
  const TensorArgument argument = tensor_argument(option, text);
  const io::TensorOnDisk file(argument.file, argument.name);
  const Dims& shape = file.shape();
  const int axis = along.axis_of(shape.size(), arguments_.length_first);
  const std::int64_t length = shape.size() < -axis ? 1 : shape[shape.size() + axis];
  const auto rows = lengths_.find("--query");
  const bool is_whole = along.broadcasts && (length == 1 || rows == lengths_.end() || length != rows->second);
  // If it has too few axes, attention() throws the error.
  if (shape.size() < -axis || is_whole) return {read_tensor(argument), shape};
  lengths_[option] = length;
  const Sharding sharding = sharding_of_length(length);
  return {file.read(axis, sharding.ranges(session_.comm().rank())), shape};
}

TensorView ShardReader::whole(const std::string& option, const TensorView& shard, int axis) const {
  Dims shape = shard.shape();
  if (is_cut(option)) shape[shape.size() + axis] = lengths_.at(option);
  return repeated(shape, shard.dtype());
}

void require_files(const AttendArguments& arguments) {
  for (const NamedFile& file : attend_input_files(arguments))
    if (file.path == "-")
      refuse_usage(file.option, " is '-', which several ranks cannot share; a file is expected");
}

void check_whole_call(const ShardReader& shards, const AttendInputs& inputs) {
  const TensorView query = shards.whole("--query", inputs.query), key = shards.whole("--key", inputs.key),
                   value = shards.whole("--value", inputs.value);
  AttentionOptions options = inputs.options;
  if (options.mask) options.mask = shards.whole("--mask", *options.mask);
  if (options.bias) options.bias = shards.whole("--bias", *options.bias);
  const Dims& shape = inputs.query_shape;
  const std::int64_t rows = size_from_end(shape, 2);
  const PositionRange all_rows{0, rows};
  const CallPart part{.batch = size_from_end(shape, 4),
                      .heads = size_from_end(shape, 3),
                      .query_length = rows,
                      .rows = {&all_rows, 1}};
  (void)check_attention_part(query, key, value, options, part, {});
  if (!inputs.by_output) return;
  Dims output = query.shape(), lse{};
  output[output.size() - 1] = value.size(-1);
  for (int axis = 0; axis + 1 < query.rank(); ++axis) lse.push_back(query.size(axis));
  const DType summary = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
  AttentionBackwardInputs from{query,
                               key,
                               value,
                               repeated(output, options.output_dtype.value_or(query.dtype())),
                               repeated(lse, summary),
                               shards.whole("--grad-output", *inputs.by_output)};
  if (inputs.by_lse) from.grad_lse = shards.whole("--grad-lse", *inputs.by_lse, -1);
  if (inputs.by_weights) from.grad_weights = shards.whole("--grad-weights", *inputs.by_weights);
  (void)check_backward_part(from, options, part, {});
}

}  // namespace heed::cli
