// The backward pass: heed.attention_backward, and the same into arrays of the caller's.
#include "heed/backward.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "fail.hpp"

namespace heed::python {
namespace {

// Arrays that a call reads or writes, alive until it ends.
class Arrays {
 public:
  TensorView read(std::string_view name, nb::handle object) { return keep(Borrowed(name, object)).view(); }
  std::optional<TensorView> read_where_given(std::string_view name, nb::handle object) {
    if (object.is_none()) return std::nullopt;
    return read(name, object);
  }
  MutableTensorView write_where_given(std::string_view name, nb::handle object) {
    if (object.is_none()) return {};
    return keep(Borrowed(name, object, true)).mutable_view();
  }

 private:
  const Borrowed& keep(Borrowed&& borrowed) {
    kept_.push_back(std::move(borrowed));
    return kept_.back();
  }

  std::vector<Borrowed> kept_;
};

AttentionBackwardInputs read_inputs(Arrays& arrays, nb::handle q, nb::handle k, nb::handle v,
                                    nb::handle output, nb::handle lse, nb::handle grad_output,
                                    nb::handle grad_lse, nb::handle grad_weights) {
  AttentionBackwardInputs inputs;
  inputs.query = arrays.read("q", q);
  inputs.key = arrays.read("k", k);
  inputs.value = arrays.read("v", v);
  inputs.output = arrays.read("output", output);
  inputs.lse = arrays.read("lse", lse);
  inputs.grad_output = arrays.read("grad_output", grad_output);
  inputs.grad_lse = arrays.read_where_given("grad_lse", grad_lse);
  inputs.grad_weights = arrays.read_where_given("grad_weights", grad_weights);
  return inputs;
}

// The gradients, as arrays; what was not asked for is None.
struct Gradients {
  nb::object dq = nb::none();
  nb::object dk = nb::none();
  nb::object dv = nb::none();
  nb::object dbias = nb::none();
  nb::object dsinks = nb::none();
  std::string kernel;
  std::string isa;
  int threads = 1;
  std::int64_t recomputed_rows = 0;
};

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
  gradients.kernel = name_of_kernel(from.kernel);
  gradients.isa = from.isa;
  gradients.threads = from.threads;
  gradients.recomputed_rows = from.recomputed_rows;
  return gradients;
}

Gradients backward_of_python(nb::handle q, nb::handle k, nb::handle v, nb::handle output, nb::handle lse,
                             nb::handle grad_output, nb::handle grad_lse, nb::handle grad_weights,
                             nb::handle gradients, const nb::kwargs& keywords) {
  Arrays arrays;
  const AttentionBackwardInputs inputs =
      read_inputs(arrays, q, k, v, output, lse, grad_output, grad_lse, grad_weights);
  const GradientRequest request = gradients.is_none() ? GradientRequest{} : gradients_named(gradients);
  const Arguments arguments = read_arguments("attention_backward", keywords);
  if (request.bias && !arguments.options.bias)
    fail("gradients has 'dbias'; a bias to differentiate by is expected");
  if (request.sinks && !arguments.options.sinks)
    fail("gradients has 'dsinks'; sinks to differentiate by are expected");
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
                             nb::handle grad_sinks, const nb::dict& options) {
  Arrays arrays;
  const AttentionBackwardInputs inputs =
      read_inputs(arrays, q, k, v, output, lse, grad_output, grad_lse, grad_weights);
  AttentionGradientViews gradients;
  gradients.query = arrays.write_where_given("grad_q", grad_q);
  gradients.key = arrays.write_where_given("grad_k", grad_k);
  gradients.value = arrays.write_where_given("grad_v", grad_v);
  gradients.bias = arrays.write_where_given("grad_bias", grad_bias);
  gradients.sinks = arrays.write_where_given("grad_sinks", grad_sinks);
  const Arguments arguments = read_arguments("attention_backward", nb::borrow<nb::kwargs>(options));
  const nb::gil_scoped_release released;
  attention_backward_into(inputs, arguments.options, gradients);
}

struct Field {
  const char* name;
  nb::object Gradients::*member;
  const char* meaning;
};

constexpr Field kFields[] = {
    {"dq", &Gradients::dq, "[B, H, Lq, D]"},
    {"dk", &Gradients::dk, "[B, Hkv, Lk, D]"},
    {"dv", &Gradients::dv, "[B, Hkv, Lk, Dv]"},
    {"dbias", &Gradients::dbias, "as bias, with size 1 for axes that it repeats (stride 0)"},
    {"dsinks", &Gradients::dsinks, "as sinks"},
};

constexpr const char* kMeaning =
    R"(The gradients of attention: from those of what a call returned to those of what it was given.

q, k, v: as heed.attention took them. output, lse: what it gave with need="lse" and the same options. grad_output
[B, H, Lq, Dv]: the gradient by output; grad_lse= [B, H, Lq] and grad_weights= [B, H, Lq, Lk]: those by lse and by
weights, where the loss reads these. gradients= (names, one or several, of dq, dk, dv, dbias, dsinks): what to compute,
dq, dk and dv where it is None.

The options are those of heed.attention (causal=, window=, bias=, cu_seqlens=, ...) and of the forward call; with dropout
its seed= too. What that call returned besides (need=, top_k=, ...) plays no part.

Gives an AttentionGradients: each field in the shape and dtype of its array and of the kind of q, None where it was not
asked for. Raises ValueError and TypeError with one sentence that names the argument.)";

std::string describe(const Gradients& gradients) {
  std::string text = "AttentionGradients(";
  for (const Field& field : kFields) {
    const nb::object& value = gradients.*field.member;
    if (value.is_none()) continue;
    text += std::string(field.name) + " " + nb::cast<std::string>(nb::repr(nb::tuple(value.attr("shape")))) +
            ", ";
  }
  return text + gradients.kernel + " kernel, " + gradients.isa + ")";
}

}  // namespace

void define_backward(nb::module_& module) {
  auto gradients = nb::class_<Gradients>(module, "AttentionGradients", nb::is_generic(),
                                         "What a backward call computed; None for what was not asked for.");
  for (const Field& field : kFields)
    gradients.def_prop_ro(
        field.name, [member = field.member](const Gradients& self) { return self.*member; }, field.meaning);
  gradients.def_ro("kernel", &Gradients::kernel, "'fused' or 'reference'")
      .def_ro("isa", &Gradients::isa, "its instruction set")
      .def_ro("threads", &Gradients::threads, "how many it used")
      .def_ro("recomputed_rows", &Gradients::recomputed_rows,
              "rows that f32 could not hold (NaN, huge scores), computed in f64")
      .def("__repr__", describe);
  module.def("attention_backward", backward_of_python, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("output"), nb::arg("lse"), nb::arg("grad_output"), nb::kw_only(),
             nb::arg("grad_lse") = nb::none(), nb::arg("grad_weights") = nb::none(),
             nb::arg("gradients") = nb::none(), nb::arg("options"),
             nb::sig("def attention_backward(q, k, v, output, lse, grad_output, *, grad_lse=None, "
                     "grad_weights=None, gradients=None, **options)"),
             kMeaning);
  module.def("attention_backward_into", backward_into_of_python, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("output"), nb::arg("lse"), nb::arg("grad_output"), nb::arg("grad_lse").none(),
             nb::arg("grad_weights").none(), nb::arg("grad_q").none(), nb::arg("grad_k").none(),
             nb::arg("grad_v").none(), nb::arg("grad_bias").none(), nb::arg("grad_sinks").none(),
             nb::arg("options"));
}

}  // namespace heed::python
