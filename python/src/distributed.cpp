// The extension module heed._heed_mpi: attention over the ranks of an MPI communicator, given by its Fortran
// handle.
#include "heed/distributed/attention.hpp"

#include <mpi.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "attention/isa/dispatch.hpp"
#include "calls.hpp"
#include "distributed.hpp"
#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/own_calls.hpp"
#include "fail.hpp"
#include "heed/attention/targets.hpp"

namespace heed::python {
namespace {

using distributed::Choice;
using distributed::Communicator;
using distributed::Layout;

struct RanksResult : Result {
  std::string scheme;
  std::int64_t bytes_sent = 0;
};

struct RanksGradients : Gradients {
  std::string scheme;
  std::int64_t bytes_sent = 0;
};

// Copying waits for the other ranks.
Communicator communicator(int number) {
  const nb::gil_scoped_release released;
  return Communicator(MPI_Comm_f2c(number));
}

// Returns read() on every rank. If it throws on one rank, all ranks throw: that rank rethrows its exception,
// and the others throw an Error that names the rank.
template <class Read>
auto read_on_all(const Communicator& comm, Read read) {
  std::optional<decltype(read())> given;
  std::exception_ptr own;
  std::string said;
  try {
    given.emplace(read());
  } catch (const nb::python_error& error) {  // its what() is a traceback
    own = std::current_exception();
    said = nb::cast<std::string>(nb::str(error.value()));
    said = said.empty() ? nb::inst_name(error.value()).c_str() : said.substr(0, said.find('\n'));
  } catch (const std::exception& error) {
    own = std::current_exception();
    said = error.what();
  }
  try {
    const nb::gil_scoped_release released;
    distributed::agree(comm, [&] {
      if (own) fail(said);
    });
  } catch (const Error&) {
    if (own) std::rethrow_exception(own);
    throw;
  }
  return *std::move(given);
}

Layout layout_of(nb::handle given) {
  const auto sharding = [](const char* name, nb::handle one) {
    if (!nb::isinstance<Sharding>(one))
      fail_type(name, " is of type ", nb::inst_name(one).c_str(), "; a Sharding is expected");
    return nb::cast<const Sharding&>(one);
  };
  if (!nb::hasattr(given, "head_begin")) {
    const Sharding one = sharding("layout", given);
    return {one, one};
  }
  const auto number = [&](const char* name) {
    const std::int64_t count = integer(std::string("layout.") + name, given.attr(name));
    if (count < 0) fail("layout.", name, " is ", count, "; 0 or more is expected");
    return count;
  };
  return {sharding("layout.query", given.attr("query")),
          sharding("layout.key", given.attr("key")),
          number("batch"),
          number("heads"),
          number("batch_begin"),
          number("head_begin")};
}

Choice choice_of(nb::handle scheme, nb::handle deterministic) {
  return {distributed::scheme_of(text("scheme", scheme)), truth("deterministic", deterministic)};
}

// Requires a seed for dropout: otherwise each rank would draw its own and drop different weights.
Arguments arguments_of(std::string_view function, nb::handle options) {
  const auto keywords = nb::borrow<nb::kwargs>(options);
  Arguments arguments = read_arguments(function, keywords);
  if (arguments.options.dropout.probability > 0 &&
      (!keywords.contains("seed") || nb::object(keywords["seed"]).is_none()))
    fail("dropout is given without seed; the same seed on all ranks is expected");
  return arguments;
}

// Empty memory may have a null address but still counts as requested, so it gets another address.
MutableTensorView addressed(const MutableTensorView& view) {
  static double anywhere[1] = {};
  return view.data() != nullptr ? view
                                : MutableTensorView(anywhere, view.dtype(), view.shape(), view.strides());
}

struct ForwardCall {
  Borrowed query, key, value;
  Layout layout;
  Choice choice;
  Arguments arguments;
  AttentionResult memory{};  // other results, if the caller provides the output
  AttentionOutputs outputs{};
};

ForwardCall read_forward(nb::handle q, nb::handle k, nb::handle v, nb::handle layout, nb::handle scheme,
                         nb::handle deterministic, nb::handle options) {
  ForwardCall call{Borrowed("q", q),
                   Borrowed("k", k),
                   Borrowed("v", v),
                   layout_of(layout),
                   choice_of(scheme, deterministic),
                   arguments_of("attention", options)};
  if (call.arguments.out) {
    const TensorView key = call.key.view();
    call.outputs = outputs_beside(call.query.view(), key.rank() < 2 ? 0 : key.size(-2),
                                  call.layout.key.length(), call.arguments, call.memory);
    call.outputs.output = addressed(call.outputs.output);
  }
  return call;
}

RanksResult attention_of_python(int number, nb::handle q, nb::handle k, nb::handle v, nb::handle layout,
                                nb::handle scheme, nb::handle deterministic, nb::handle options) {
  const Communicator comm = communicator(number);
  ForwardCall call =
      read_on_all(comm, [&] { return read_forward(q, k, v, layout, scheme, deterministic, options); });
  const AttentionOptions& how = call.arguments.options;
  distributed::Result found;
  {
    const nb::gil_scoped_release released;
    distributed::agree_on(comm, {{"whether there is an out", call.arguments.out.has_value()}});
    if (call.arguments.out) {
      const distributed::Run run =
          distributed::attention_into(comm, call.query.view(), call.key.view(), call.value.view(),
                                      call.layout, how, call.outputs, call.choice);
      static_cast<AttentionResult&>(found) = std::move(call.memory);
      found.kernel = run.kernel;
      found.isa = run.isa;
      found.threads = run.threads;
      found.recomputed_rows = run.recomputed_rows;
      found.scheme = run.scheme;
      found.bytes_sent = run.bytes_sent;
    } else {
      found = distributed::attention(comm, call.query.view(), call.key.view(), call.value.view(), call.layout,
                                     how, call.choice);
    }
  }
  const Kind kind = array_type(q).kind;
  nb::object output =
      call.arguments.out ? call.arguments.out_object : to_python(std::move(found.output), kind);
  const std::string taken(name_of(found.scheme));
  const std::int64_t bytes_sent = found.bytes_sent;
  RanksResult result{to_result(std::move(found), how, kind), taken, bytes_sent};
  result.output = std::move(output);
  return result;
}

struct BackwardCall {
  Arrays arrays;
  AttentionBackwardInputs inputs;
  Layout layout;
  Choice choice;
  Arguments arguments;
  GradientRequest request;
};

RanksGradients backward_of_python(int number, nb::handle q, nb::handle k, nb::handle v, nb::handle output,
                                  nb::handle lse, nb::handle grad_output, nb::handle layout,
                                  nb::handle grad_lse, nb::handle grad_weights, nb::handle gradients,
                                  nb::handle scheme, nb::handle deterministic, nb::handle options) {
  const Communicator comm = communicator(number);
  const BackwardCall call = read_on_all(comm, [&] {
    Arrays arrays;
    const AttentionBackwardInputs inputs =
        read_inputs(arrays, {q, k, v, output, lse, grad_output, grad_lse, grad_weights});
    Arguments arguments = arguments_of("attention_backward", options);
    const GradientRequest request = requested(gradients, arguments.options);
    return BackwardCall{std::move(arrays),    inputs, layout_of(layout), choice_of(scheme, deterministic),
                        std::move(arguments), request};
  });
  distributed::Gradients found;
  {
    const nb::gil_scoped_release released;
    found = distributed::attention_backward(comm, call.inputs, call.layout, call.arguments.options,
                                            call.request, call.choice);
  }
  const std::string taken(name_of(found.scheme));
  const std::int64_t bytes_sent = found.bytes_sent;
  return {to_gradients(std::move(found), call.request, array_type(q).kind), taken, bytes_sent};
}

// The repr of a result over ranks.
template <class Of>
std::string described(const Of& self) {
  std::string text = text_of(self);
  text.pop_back();
  return text + ", " + self.scheme + ", " + std::to_string(self.bytes_sent) + " bytes sent)";
}

// `restore` makes the base class from the fields of a pickled state.
template <class Own, class Base>
void define_result(nb::module_& module, const char* name, const char* meaning,
                   Base (*restore)(const ResultFields&)) {
  const auto state = [](const Own& self) {
    nb::dict all = state_of(self);
    all["scheme"] = self.scheme;
    all["bytes_sent"] = self.bytes_sent;
    return all;
  };
  const auto made = [restore](nb::handle saved_state) {
    const ResultFields fields(saved_state);
    return Own{restore(fields), fields.text("scheme"), fields.integer("bytes_sent")};
  };
  nb::class_<Own, Base>(module, name, nb::is_generic(), meaning)
      .def_ro("scheme", &Own::scheme, "'ring', 'gather', 'ulysses' or 'decode'")
      .def_ro("bytes_sent", &Own::bytes_sent, "by this rank")
      .def("__repr__", described<Own>)
      .def(pickled(state, made));
}

// (version of the MPI library, whether it is initialised)
nb::tuple library() {
  std::string version(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0, begun = 0;
  MPI_Get_library_version(version.data(), &length);
  MPI_Initialized(&begun);
  version.resize(static_cast<std::size_t>(length));
  return nb::make_tuple(version, begun != 0);
}

// This module has its own target. The user sets it through heed._heed.
void use_target(const std::string& name) {
  if (detail::cpu::kernels().name() != name) set_target(name);
}

}  // namespace
}  // namespace heed::python

NB_MODULE(_heed_mpi, module) {
  using namespace heed::python;
  define_sharding(module);
  define_result<RanksResult, Result>(module, "AttentionResult", "The results of a call over ranks.",
                                     result_from);
  define_result<RanksGradients, Gradients>(module, "AttentionGradients",
                                           "The gradients of a call over ranks.", gradients_from);
  // All may be None, because the ranks agree about an argument that one of them lacks.
  const auto q = nb::arg("q").none(), k = nb::arg("k").none(), v = nb::arg("v").none();
  const auto layout = nb::arg("layout").none(), scheme = nb::arg("scheme").none();
  const auto deterministic = nb::arg("deterministic").none();
  const nb::arg comm("comm"), options("options");
  module.def("attention", attention_of_python, comm, q, k, v, layout, scheme, deterministic, options);
  module.def("attention_backward", backward_of_python, comm, q, k, v, nb::arg("output").none(),
             nb::arg("lse").none(), nb::arg("grad_output").none(), layout, nb::arg("grad_lse").none(),
             nb::arg("grad_weights").none(), nb::arg("gradients").none(), scheme, deterministic, options);
  module.def("library", library);
  module.def("use_target", use_target);
}
