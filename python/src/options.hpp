// The keyword arguments of heed.attention, also used by other functions, as options of a call.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"

namespace heed::python {

/// Options, and the objects that they refer to, kept alive.
struct Arguments {
  AttentionOptions options;
  std::vector<Borrowed> borrowed;
  bool asked = false;  ///< results besides the output were requested
  std::optional<Borrowed> out;
  nb::object out_object;  ///< the caller's object
};

/// Throws TypeError for an unknown option, naming `function`, or for a value of the wrong type; ValueError
/// for a wrong value. None keeps an option's default.
Arguments read_arguments(std::string_view function, const nb::kwargs& keywords);
void set_argument(std::string_view function, Arguments& arguments, std::string_view name, nb::handle value);

/// One or several of dq, dk, dv, dbias, dsinks, ddecay.
GradientRequest gradients_named(nb::handle value);

/// Conversions of Python values; error messages contain `name`.
std::int64_t integer(std::string_view name, nb::handle value);
std::uint64_t unsigned_integer(std::string_view name, nb::handle value);
/// The argument `threads`.
int threads_of(nb::handle value);
double number(std::string_view name, nb::handle value);
bool truth(std::string_view name, nb::handle value);
std::string text(std::string_view name, nb::handle value);
std::pair<nb::object, nb::object> two(std::string_view name, nb::handle value, std::string_view expected);
DType dtype(std::string_view name, nb::handle value);

}  // namespace heed::python
