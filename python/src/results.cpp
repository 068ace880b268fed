// Conversion of call results for Python.
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "fail.hpp"

namespace heed::python {
namespace {

// The sizes of a result's axes after the head axis; empty for the output.
std::vector<std::int64_t> axes_of(const ResultEntry& entry, const AttentionOptions& options,
                                  std::int64_t rows, std::int64_t keys) {
  switch (entry.shape) {
    case ResultShape::pair:
      return {rows, keys};
    case ResultShape::row:
      return {rows};
    case ResultShape::top_k:
      return {rows, options.top_k};
    case ResultShape::map:
      return {options.map.rows, options.map.columns};
    default:
      return {keys};
  }
}

}  // namespace

// Does not check shapes: the library does so before it uses these.
AttentionOutputs outputs_beside(const TensorView& query, std::int64_t keys, std::int64_t all_keys,
                                const Arguments& arguments, AttentionResult& memory) {
  const AttentionOptions& options = arguments.options;
  AttentionOutputs outputs;
  outputs.output = arguments.out->mutable_view();
  for (std::size_t i = 0; i < kResultCount && query.rank() >= 2; ++i) {
    const ResultEntry& entry = result_entry(i);
    if (entry.shape == ResultShape::output || !is_asked_for(entry, options)) continue;
    Dims shape;
    for (int axis = 0; axis + 2 < query.rank(); ++axis) shape.push_back(query.shape()[axis]);
    const std::int64_t columns = entry.shape == ResultShape::pair ? all_keys : keys;
    for (const std::int64_t size : axes_of(entry, options, query.size(-2), columns)) shape.push_back(size);
    const DType summary = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
    Tensor& place = result<Tensor>(memory, i);
    place = Tensor::uninitialized(shape, entry.type == ResultType::index ? DType::i64 : summary);
    result(outputs, i) = place;
  }
  return outputs;
}

AttentionResult beside_output(const TensorView& query, std::int64_t keys, const Arguments& arguments,
                              const std::function<AttentionRun(const AttentionOutputs&)>& run_into) {
  AttentionResult all;
  const AttentionOutputs outputs = outputs_beside(query, keys, keys, arguments, all);
  const AttentionRun run = run_into(outputs);
  all.kernel = run.kernel;
  all.isa = run.isa;
  all.threads = run.threads;
  all.recomputed_rows = run.recomputed_rows;
  return all;
}

nb::object give(AttentionResult&& result, const Arguments& arguments, Kind kind) {
  nb::object output = arguments.out ? arguments.out_object : to_python(std::move(result.output), kind);
  if (!arguments.asked) return output;
  Result given = to_result(std::move(result), arguments.options, kind);
  given.output = std::move(output);
  return nb::cast(std::move(given));
}

std::string_view name_of_kernel(Kernel kernel) { return kernel == Kernel::fused ? "fused" : "reference"; }

Result to_result(AttentionResult&& from, const AttentionOptions& options, Kind kind) {
  Result result;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    if (entry.shape != ResultShape::output && is_asked_for(entry, options))
      heed::result<nb::object>(result, i) = to_python(std::move(heed::result<Tensor>(from, i)), kind);
  }
  result.kernel = name_of_kernel(from.kernel);
  result.isa = from.isa;
  result.threads = from.threads;
  result.recomputed_rows = from.recomputed_rows;
  return result;
}

std::string text_of(const Result& result) {
  std::string text = "AttentionResult(";
  for (const auto& [entry, member] : kResults<nb::object>) {
    const nb::object& value = result.*member;
    if (!value.is_valid()) continue;
    text += std::string(entry.name()) + " " +
            nb::cast<std::string>(nb::repr(nb::tuple(value.attr("shape")))) + ", ";
  }
  return text + result.kernel + " kernel, " + result.isa + ")";
}

namespace {

// The fields that results and gradients share.
template <class Of>
void add_run(const Of& of, nb::dict& state) {
  state["kernel"] = of.kernel;
  state["isa"] = of.isa;
  state["threads"] = of.threads;
  state["recomputed_rows"] = of.recomputed_rows;
}

template <class Of>
void read_run(const ResultFields& fields, Of& of) {
  of.kernel = fields.text("kernel");
  of.isa = fields.text("isa");
  of.threads = static_cast<int>(fields.integer("threads"));
  of.recomputed_rows = fields.integer("recomputed_rows");
}

}  // namespace

nb::dict state_of(const Result& result) {
  nb::dict state;
  for (const auto& [entry, member] : kResults<nb::object>) {
    const nb::object& value = result.*member;
    state[entry.name().data()] = value.is_valid() ? value : nb::none();
  }
  add_run(result, state);
  return state;
}

Result result_from(const ResultFields& fields) {
  Result result;
  for (const auto& [entry, member] : kResults<nb::object>) {
    nb::object value = fields.array_or_none(entry.name().data());
    if (!value.is_none()) result.*member = std::move(value);
  }
  read_run(fields, result);
  return result;
}

nb::dict state_of(const Gradients& gradients) {
  nb::dict state;
  for (const GradientField& field : kGradientFields) state[field.name] = gradients.*field.member;
  add_run(gradients, state);
  return state;
}

Gradients gradients_from(const ResultFields& fields) {
  Gradients gradients;
  for (const GradientField& field : kGradientFields)
    gradients.*field.member = fields.array_or_none(field.name);
  read_run(fields, gradients);
  return gradients;
}

AttentionBackwardInputs read_inputs(Arrays& arrays, const BackwardArrays& from) {
  AttentionBackwardInputs inputs;
  inputs.query = arrays.read("q", from.q);
  inputs.key = arrays.read("k", from.k);
  inputs.value = arrays.read("v", from.v);
  inputs.output = arrays.read("output", from.output);
  if (from.lse.is_none()) fail_type("lse is None; the lse of attention(q, k, v, need='lse') is expected");
  inputs.lse = arrays.read("lse", from.lse);
  inputs.grad_output = arrays.read("grad_output", from.grad_output);
  inputs.grad_lse = arrays.read_where_given("grad_lse", from.grad_lse);
  inputs.grad_weights = arrays.read_where_given("grad_weights", from.grad_weights);
  return inputs;
}

GradientRequest requested(nb::handle gradients, const AttentionOptions& options) {
  const GradientRequest request = gradients.is_none() ? GradientRequest{} : gradients_named(gradients);
  if (request.bias && !options.bias)
    fail("gradients has 'dbias', but the call has no bias; a bias is expected");
  if (request.sinks && !options.sinks)
    fail("gradients has 'dsinks', but the call has no sinks; sinks are expected");
  if (request.decay && !options.decay)
    fail("gradients has 'ddecay', but the call has no decay; a decay is expected");
  return request;
}

Gradients to_gradients(AttentionGradients&& from, const GradientRequest& request, Kind kind) {
  Gradients gradients;
  const auto give = [&](bool asked, Tensor& tensor, nb::object& place) {
    if (asked) place = to_python(std::move(tensor), kind);
  };
  give(request.query, from.query, gradients.dq);
  give(request.key, from.key, gradients.dk);
  give(request.value, from.value, gradients.dv);
  give(request.bias, from.bias, gradients.dbias);
  give(request.sinks, from.sinks, gradients.dsinks);
  give(request.decay, from.decay, gradients.ddecay);
  gradients.kernel = name_of_kernel(from.kernel);
  gradients.isa = from.isa;
  gradients.threads = from.threads;
  gradients.recomputed_rows = from.recomputed_rows;
  return gradients;
}

std::string text_of(const Gradients& gradients) {
  std::string text = "AttentionGradients(";
  for (const GradientField& field : kGradientFields) {
    const nb::object& value = gradients.*field.member;
    if (value.is_none()) continue;
    text += std::string(field.name) + " " + nb::cast<std::string>(nb::repr(nb::tuple(value.attr("shape")))) +
            ", ";
  }
  return text + gradients.kernel + " kernel, " + gradients.isa + ")";
}

}  // namespace heed::python
