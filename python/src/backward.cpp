// The backward pass: heed.attention_backward, and the same into the caller's arrays.
#include "heed/attention/backward.hpp"

#include <utility>

#include "calls.hpp"

namespace heed::python {
namespace {

Gradients backward_of_python(nb::handle q, nb::handle k, nb::handle v, nb::handle output, nb::handle lse,
                             nb::handle grad_output, nb::handle grad_lse, nb::handle grad_weights,
                             nb::handle gradients, const nb::kwargs& keywords) {
  Arrays arrays;
  const AttentionBackwardInputs inputs =
      read_inputs(arrays, {q, k, v, output, lse, grad_output, grad_lse, grad_weights});
  const Arguments arguments = read_arguments("attention_backward", keywords);
  const GradientRequest request = requested(gradients, arguments.options);
  AttentionGradients found;
  {
    const nb::gil_scoped_release released;
    found = attention_backward(inputs, arguments.options, request);
  }
  return to_gradients(std::move(found), request, array_type(q).kind);
}

void backward_into_of_python(nb::handle q, nb::handle k, nb::handle v, nb::handle output, nb::handle lse,
                             nb::handle grad_output, nb::handle grad_lse, nb::handle grad_weights,
                             nb::handle grad_q, nb::handle grad_k, nb::handle grad_v, nb::handle grad_bias,
                             nb::handle grad_sinks, nb::handle grad_decay, const nb::dict& options) {
  Arrays arrays;
  const AttentionBackwardInputs inputs =
      read_inputs(arrays, {q, k, v, output, lse, grad_output, grad_lse, grad_weights});
  AttentionGradientViews gradients;
  gradients.query = arrays.write_where_given("grad_q", grad_q);
  gradients.key = arrays.write_where_given("grad_k", grad_k);
  gradients.value = arrays.write_where_given("grad_v", grad_v);
  gradients.bias = arrays.write_where_given("grad_bias", grad_bias);
  gradients.sinks = arrays.write_where_given("grad_sinks", grad_sinks);
  gradients.decay = arrays.write_where_given("grad_decay", grad_decay);
  const Arguments arguments = read_arguments("attention_backward", nb::borrow<nb::kwargs>(options));
  const nb::gil_scoped_release released;
  attention_backward_into(inputs, arguments.options, gradients);
}

constexpr const char* kBackwardMeaning =
    R"(The gradients of attention: from those of what a call returned to those of what it was given.

q, k, v: as heed.attention took them. output, lse: what it gave with need="lse" and the same options. grad_output
[B, H, Lq, Dv]: the gradient by output; grad_lse= [B, H, Lq] and grad_weights= [B, H, Lq, Lk]: those by lse and by
weights, where the loss reads these. gradients= (names, one or several, of dq, dk, dv, dbias, dsinks, ddecay): what to
compute, dq, dk and dv where it is None.

The options are those of heed.attention (causal=, window=, bias=, cu_seqlens=, ...) and of the forward call; with dropout
its seed= too. What that call returned besides (need=, top_k=, ...) plays no part.

Gives an AttentionGradients: each field in the shape and dtype of its array and of the kind of q, None where it was not
asked for. Raises ValueError and TypeError with one sentence that names the argument.)";

}  // namespace

void define_backward(nb::module_& module) {
  auto gradients =
      nb::class_<Gradients>(module, "AttentionGradients", nb::is_generic(),
                            "The gradients of a call; None for gradients that were not requested.");
  for (const GradientField& field : kGradientFields)
    gradients.def_prop_ro(
        field.name, [member = field.member](const Gradients& self) { return self.*member; }, field.meaning);
  gradients.def_ro("kernel", &Gradients::kernel, "'fused' or 'reference'")
      .def_ro("isa", &Gradients::isa, "its instruction set")
      .def_ro("threads", &Gradients::threads, "number of threads used")
      .def_ro("recomputed_rows", &Gradients::recomputed_rows,
              "rows that f32 could not hold (NaN, huge scores), computed in f64")
      .def("__repr__", [](const Gradients& self) { return text_of(self); })
      .def(pickled([](const Gradients& self) { return state_of(self); },
                   [](nb::handle state) { return gradients_from(ResultFields(state)); }));
  // None is a default, so that the call and not nanobind says what is missing.
  module.def("attention_backward", backward_of_python, nb::arg("q") = nb::none(), nb::arg("k") = nb::none(),
             nb::arg("v") = nb::none(), nb::arg("output") = nb::none(), nb::arg("lse") = nb::none(),
             nb::arg("grad_output") = nb::none(), nb::kw_only(), nb::arg("grad_lse") = nb::none(),
             nb::arg("grad_weights") = nb::none(), nb::arg("gradients") = nb::none(), nb::arg("options"),
             nb::sig("def attention_backward(q, k, v, output, lse, grad_output, *, grad_lse=None, "
                     "grad_weights=None, gradients=None, **options)"),
             kBackwardMeaning);
  module.def("attention_backward_into", backward_into_of_python, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("output"), nb::arg("lse"), nb::arg("grad_output"), nb::arg("grad_lse").none(),
             nb::arg("grad_weights").none(), nb::arg("grad_q").none(), nb::arg("grad_k").none(),
             nb::arg("grad_v").none(), nb::arg("grad_bias").none(), nb::arg("grad_sinks").none(),
             nb::arg("grad_decay").none(), nb::arg("options"));
}

}  // namespace heed::python
