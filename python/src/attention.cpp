// heed.attention: from Python objects to a call of the library, and its results back.
#include <string>
#include <utility>

#include "calls.hpp"
#include "fail.hpp"

namespace heed::python {
namespace {

// Results beside an output in the caller's memory. Of shapes that do not fit the library says so itself,
// before it looks at these.
AttentionResult call_into(const TensorView& query, const TensorView& key, const TensorView& value,
                          const Arguments& arguments) {
  const AttentionOptions& options = arguments.options;
  AttentionResult result;
  AttentionOutputs outputs;
  outputs.output = arguments.out->mutable_view();
  if (arguments.asked && query.rank() >= 2 && key.rank() == query.rank()) {
    const DType dtype = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
    Dims heads;  // the axes before the queries
    for (int axis = 0; axis + 2 < query.rank(); ++axis) heads.push_back(query.shape()[axis]);
    const auto make = [&](std::initializer_list<std::int64_t> last, Tensor& place, MutableTensorView& output,
                          DType type) {
      Dims shape = heads;
      for (const std::int64_t size : last) shape.push_back(size);
      place = Tensor::uninitialized(shape, type);
      output = place;
    };
    const std::int64_t rows = query.size(-2);
    const std::int64_t keys = key.size(-2);
    const auto row = [&](Need need, Tensor& place, MutableTensorView& output) {
      if (has(options.need, need)) make({rows}, place, output, dtype);
    };
    row(Need::lse, result.lse, outputs.lse);
    row(Need::max_score, result.max_score, outputs.max_score);
    row(Need::entropy, result.entropy, outputs.entropy);
    row(Need::distance, result.distance, outputs.distance);
    if (has(options.need, Need::received)) make({keys}, result.received, outputs.received, dtype);
    if (has(options.need, Need::weights)) make({rows, keys}, result.weights, outputs.weights, dtype);
    if (has(options.need, Need::scores)) make({rows, keys}, result.scores, outputs.scores, dtype);
    if (options.received_last > 0) make({keys}, result.received_last, outputs.received_last, dtype);
    if (options.top_k > 0) {
      make({rows, options.top_k}, result.top_k_index, outputs.top_k_index, DType::i64);
      make({rows, options.top_k}, result.top_k_weight, outputs.top_k_weight, dtype);
    }
    if (options.map.rows > 0 && options.map.columns > 0)
      make({options.map.rows, options.map.columns}, result.map, outputs.map, dtype);
  }
  const AttentionRun run = attention_into(query, key, value, options, outputs);
  result.kernel = run.kernel;
  result.isa = run.isa;
  result.threads = run.threads;
  result.recomputed_rows = run.recomputed_rows;
  return result;
}

nb::object attention_of_python(nb::handle q, nb::handle k, nb::handle v, const nb::kwargs& keywords) {
  const Kind kind = array_type(q).kind;
  const Borrowed query("q", q);
  const Borrowed key("k", k);
  const Borrowed value("v", v);
  Arguments arguments = read_arguments("attention", keywords);
  AttentionResult result;
  {
    const nb::gil_scoped_release released;
    result = arguments.out ? call_into(query.view(), key.view(), value.view(), arguments)
                           : attention(query.view(), key.view(), value.view(), arguments.options);
  }
  nb::object output = arguments.out ? arguments.out_object : to_python(std::move(result.output), kind);
  if (!arguments.asked) return output;
  Result given = to_result(std::move(result), arguments.options, kind);
  given.output = std::move(output);
  return nb::cast(std::move(given));
}

struct Field {
  const char* name;
  nb::object Result::*member;
  const char* meaning;
};

constexpr Field kFields[] = {
    {"output", &Result::output, "[B, H, Lq, Dv]"},
    {"weights", &Result::weights, "[B, H, Lq, Lk]: p_ij before dropout"},
    {"scores", &Result::scores, "[B, H, Lq, Lk]: before the softmax, at scores_stage"},
    {"lse", &Result::lse, "[B, H, Lq]: log of the softmax denominator"},
    {"max_score", &Result::max_score, "[B, H, Lq]: the largest allowed score"},
    {"entropy", &Result::entropy, "[B, H, Lq]: of the weights, in nats"},
    {"distance", &Result::distance, "[B, H, Lq]: mean |p_i - j| under the weights"},
    {"top_k_index", &Result::top_k_index,
     "[B, H, Lq, K]: the most attended keys, -1 beyond the allowed ones"},
    {"top_k_weight", &Result::top_k_weight, "[B, H, Lq, K]: their weights"},
    {"received", &Result::received, "[B, H, Lk]: what each key received"},
    {"received_last", &Result::received_last, "[B, H, Lk]: the same over the last rows only"},
    {"map", &Result::map, "[B, H, R, C]: the weights summed into bins"},
};

constexpr const char* kMeaning =
    R"(Scaled dot-product attention that can show its weights.

q [B, H, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv]: NumPy arrays, PyTorch tensors on the CPU, or whatever
else speaks DLPack or the buffer protocol; all of one floating dtype and of 2 to 4 axes. They are read in place.

What is computed: causal=True, window=(left, right), mask= (bool, True allows), bias=, scale=, softcap=,
alibi= (slopes), sinks=, kv_lengths=, cu_seqlens= (packed sequences), align= ('top-left', 'bottom-right'),
query_offset=, dropout=, seed=, dropout_offset=.

What is returned: the output, [B, H, Lq, Dv], of the kind and dtype of q. With need= (names, one or several, of
lse, max_score, entropy, distance, received, weights, scores), top_k=K, received_last=W or map=(rows, columns)
an AttentionResult with a field for each.

Also scores_stage= ('raw', 'softcap', 'bias'), out= (an array for the output), output_dtype=, kernel=
('automatic', 'reference', 'fused'), threads=. None is the default of every option.

Raises ValueError and TypeError with one sentence that names the argument.)";

std::string describe(const Result& result) {
  std::string text = "AttentionResult(";
  for (const Field& field : kFields) {
    const nb::object& value = result.*field.member;
    if (value.is_none()) continue;
    text += std::string(field.name) + " " + nb::cast<std::string>(nb::repr(nb::tuple(value.attr("shape")))) +
            ", ";
  }
  return text + result.kernel + " kernel, " + result.isa + ")";
}

}  // namespace

std::string_view name_of_kernel(Kernel kernel) { return kernel == Kernel::fused ? "fused" : "reference"; }

Result to_result(AttentionResult&& from, const AttentionOptions& options, Kind kind) {
  Result result;
  const auto give = [&](bool asked, Tensor& tensor, nb::object& place) {
    if (asked) place = to_python(std::move(tensor), kind);
  };
  give(has(options.need, Need::weights), from.weights, result.weights);
  give(has(options.need, Need::scores), from.scores, result.scores);
  give(has(options.need, Need::lse), from.lse, result.lse);
  give(has(options.need, Need::max_score), from.max_score, result.max_score);
  give(has(options.need, Need::entropy), from.entropy, result.entropy);
  give(has(options.need, Need::distance), from.distance, result.distance);
  give(has(options.need, Need::received), from.received, result.received);
  give(options.top_k > 0, from.top_k_index, result.top_k_index);
  give(options.top_k > 0, from.top_k_weight, result.top_k_weight);
  give(options.received_last > 0, from.received_last, result.received_last);
  give(options.map.rows > 0 && options.map.columns > 0, from.map, result.map);
  result.kernel = name_of_kernel(from.kernel);
  result.isa = from.isa;
  result.threads = from.threads;
  result.recomputed_rows = from.recomputed_rows;
  return result;
}

void define_attention(nb::module_& module) {
  auto result = nb::class_<Result>(module, "AttentionResult", nb::is_generic(),
                                   "What a call computed; None for what was not asked for.");
  for (const Field& field : kFields)
    result.def_prop_ro(
        field.name, [member = field.member](const Result& self) { return self.*member; }, field.meaning);
  result.def_ro("kernel", &Result::kernel, "'fused' or 'reference'")
      .def_ro("isa", &Result::isa, "its instruction set")
      .def_ro("threads", &Result::threads, "how many it used")
      .def_ro("recomputed_rows", &Result::recomputed_rows,
              "rows that f32 could not hold (NaN, huge scores), computed in f64")
      .def("__repr__", describe);
  module.def("attention", attention_of_python, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("options"),
             nb::sig("def attention(q, k, v, **options)"), kMeaning);
}

}  // namespace heed::python
