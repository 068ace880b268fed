// The backward pass, into arrays of the caller's.
#include "heed/backward.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "calls.hpp"

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

void backward_of_python(nb::handle q, nb::handle k, nb::handle v, nb::handle output, nb::handle lse,
                        nb::handle grad_output, nb::handle grad_lse, nb::handle grad_weights,
                        nb::handle grad_q, nb::handle grad_k, nb::handle grad_v, nb::handle grad_bias,
                        nb::handle grad_sinks, const nb::dict& options) {
  Arrays arrays;
  AttentionBackwardInputs inputs;
  inputs.query = arrays.read("q", q);
  inputs.key = arrays.read("k", k);
  inputs.value = arrays.read("v", v);
  inputs.output = arrays.read("output", output);
  inputs.lse = arrays.read("lse", lse);
  inputs.grad_output = arrays.read("grad_output", grad_output);
  inputs.grad_lse = arrays.read_where_given("grad_lse", grad_lse);
  inputs.grad_weights = arrays.read_where_given("grad_weights", grad_weights);
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

}  // namespace

void define_backward(nb::module_& module) {
  module.def("attention_backward", backward_of_python, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("output"), nb::arg("lse"), nb::arg("grad_output"), nb::arg("grad_lse").none(),
             nb::arg("grad_weights").none(), nb::arg("grad_q").none(), nb::arg("grad_k").none(),
             nb::arg("grad_v").none(), nb::arg("grad_bias").none(), nb::arg("grad_sinks").none(),
             nb::arg("options"));
}

}  // namespace heed::python
