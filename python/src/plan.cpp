// Plans of calls as dictionaries. python/heed/_plan.py makes them objects.
#include "heed/attention/plan.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "calls.hpp"

namespace heed::python {
namespace {

nb::dict dictionary_of(const AttentionPlan& plan) {
  nb::list passes;
  for (const PlannedPass& pass : plan.passes) {
    nb::dict fields;
    fields["name"] = pass.name;
    fields["unit"] = pass.unit;
    fields["path"] = pass.path;
    fields["schedule"] = pass.schedule;
    fields["because"] = pass.because;
    fields["tasks"] = pass.tasks;
    fields["rows"] = pass.rows;
    fields["keys"] = pass.keys;
    fields["threads"] = pass.threads;
    fields["bytes"] = pass.bytes;
    passes.append(fields);
  }
  nb::dict all;
  all["kernel"] = name_of_kernel(plan.kernel);
  all["isa"] = plan.isa;
  all["because"] = plan.because;
  all["passes"] = passes;
  all["multiply_adds"] = plan.multiply_adds;
  all["result_bytes"] = plan.result_bytes;
  all["falls_back"] = plan.falls_back;
  return all;
}

nb::dict plan_of_python(nb::handle q, nb::handle k, nb::handle v, const nb::kwargs& keywords) {
  require_inputs("plan_attention", q, k, v, keywords);
  if (is_cache(k)) return dictionary_of(plan_over_cache(q, k, keywords));
  const Borrowed query("q", q), key("k", k), value("v", v);
  const Arguments arguments = read_arguments("plan_attention", keywords);
  return dictionary_of(plan_attention(query.view(), key.view(), value.view(), arguments.options));
}

nb::dict backward_plan_of_python(nb::handle q, nb::handle k, nb::handle v, nb::handle output, nb::handle lse,
                                 nb::handle grad_output, nb::handle grad_lse, nb::handle grad_weights,
                                 nb::handle gradients, const nb::kwargs& keywords) {
  Arrays arrays;
  const AttentionBackwardInputs inputs =
      read_inputs(arrays, {q, k, v, output, lse, grad_output, grad_lse, grad_weights});
  const Arguments arguments = read_arguments("plan_attention_backward", keywords);
  return dictionary_of(
      plan_attention_backward(inputs, arguments.options, requested(gradients, arguments.options)));
}

}  // namespace

void define_plan(nb::module_& module) {
  module.def("plan_attention", plan_of_python, nb::arg("q").none() = nb::none(),
             nb::arg("k").none() = nb::none(), nb::arg("v").none() = nb::none(), nb::arg("options"));
  module.def("plan_attention_backward", backward_plan_of_python, nb::arg("q") = nb::none(),
             nb::arg("k") = nb::none(), nb::arg("v") = nb::none(), nb::arg("output") = nb::none(),
             nb::arg("lse") = nb::none(), nb::arg("grad_output") = nb::none(), nb::kw_only(),
             nb::arg("grad_lse") = nb::none(), nb::arg("grad_weights") = nb::none(),
             nb::arg("gradients") = nb::none(), nb::arg("options"));
}

}  // namespace heed::python
