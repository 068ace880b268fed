// heed.attention: converts Python arguments to a library call, and its results to Python.
#include <utility>

#include "calls.hpp"
#include "fail.hpp"

namespace heed::python {

// Called with the names of PyTorch's arguments, q and k are missing; then those names are refused with a
// hint.
void require_inputs(const char* function, nb::handle q, nb::handle k, nb::handle v,
                    const nb::kwargs& keywords) {
  if (q.is_none() || k.is_none()) {
    for (const char* theirs : {"query", "key", "value"})
      if (keywords.contains(theirs)) (void)read_arguments(function, keywords);
    fail_type((q.is_none() ? "q" : "k"), " is missing; ", function, "(q, k, v), or ", function,
              "(q, cache), is expected");
  }
  if (is_cache(k) && !v.is_none())
    fail_type("v is given together with a KvCache, which contains the values; None is expected");
}

namespace {

nb::object attention_of_python(nb::handle q, nb::handle k, nb::handle v, const nb::kwargs& keywords) {
  require_inputs("attention", q, k, v, keywords);
  if (is_cache(k)) return attention_over_cache(q, k, keywords);
  const Kind kind = array_type(q).kind;
  const Borrowed query("q", q);
  const Borrowed key("k", k);
  const Borrowed value("v", v);
  Arguments arguments = read_arguments("attention", keywords);
  AttentionResult result;
  {
    const nb::gil_scoped_release released;
    const std::int64_t keys = key.view().rank() < 2 ? 0 : key.view().size(-2);
    result = arguments.out ? beside_output(query.view(), keys, arguments,
                                           [&](const AttentionOutputs& outputs) {
                                             return attention_into(query.view(), key.view(), value.view(),
                                                                   arguments.options, outputs);
                                           })
                           : attention(query.view(), key.view(), value.view(), arguments.options);
  }
  return give(std::move(result), arguments, kind);
}

constexpr const char* kMeaning =
    R"(Scaled dot-product attention that can show its weights.

q [B, H, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv]: NumPy arrays, PyTorch tensors on the CPU, or whatever
else speaks DLPack or the buffer protocol; all of one floating dtype and of 2 to 4 axes. They are read in place.

attention(q, cache) attends the rows of a heed.KvCache, from where they lie; q [B, H, Lq, D], its last query at the
last position of its sequence. Also sequences= (which of the cache's; all where None), tree_parents= and tree_mask=
(how drafted queries see one another). There are no kv_lengths; cu_seqlens are offsets of the queries alone.

What is computed: causal=True, window=(left, right), mask= (bool, True allows), bias=, scale=, softcap=,
alibi= (slopes), decay= (c [B, H, L]; c_i - c_j is added to the score), sinks=, kv_lengths=, cu_seqlens= (packed
sequences), align= ('top-left', 'bottom-right'), query_offset=, dropout=, seed=, dropout_offset=.

What is returned: the output, [B, H, Lq, Dv], of the kind and dtype of q. With need= (one or several names, such as
'lse' and 'weights'), top_k=K, received_last=W or map=(rows, columns) an AttentionResult, with a field for each result.

Also scores_stage= ('raw', 'softcap', 'bias'), out= (an array for the output), output_dtype=, kernel=
('automatic', 'reference', 'fused'), threads=. None is the default of every option.

Raises ValueError and TypeError with one sentence that names the argument.)";

}  // namespace

void define_attention(nb::module_& module) {
  auto result = nb::class_<Result>(module, "AttentionResult", nb::is_generic(),
                                   "The results of a call; None for results that were not requested.");
  for (const auto& [entry, member] : kResults<nb::object>)
    result.def_prop_ro(
        entry.name().data(),
        [member = member](const Result& self) {
          return (self.*member).is_valid() ? self.*member : nb::none();
        },
        entry.meaning);
  result.def_ro("kernel", &Result::kernel, "'fused' or 'reference'")
      .def_ro("isa", &Result::isa, "its instruction set")
      .def_ro("threads", &Result::threads, "number of threads used")
      .def_ro("recomputed_rows", &Result::recomputed_rows,
              "rows that f32 could not hold (NaN, huge scores), computed in f64")
      .def("__iter__",
           [](const Result&) -> nb::object {
             fail_type(
                 "an AttentionResult cannot be unpacked, because its results have no order; result.output, "
                 "result.weights, … are expected");
           })
      .def("__repr__", [](const Result& self) { return text_of(self); })
      .def(pickled([](const Result& self) { return state_of(self); },
                   [](nb::handle state) { return result_from(ResultFields(state)); }));
  nb::list rows;
  for (const auto& [entry, member] : kResults<int>)
    if (entry.shape == ResultShape::row) rows.append(entry.name().data());
  module.attr("ROW_RESULTS") = nb::tuple(rows);
  module.def("attention", attention_of_python, nb::arg("q").none() = nb::none(),
             nb::arg("k").none() = nb::none(), nb::arg("v").none() = nb::none(), nb::arg("options"),
             nb::sig("def attention(q, k, v=None, **options)"), kMeaning);
}

}  // namespace heed::python
