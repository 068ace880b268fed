// The keyword arguments of heed.attention, and of all that takes the same, as options of a call.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "heed/attention.hpp"
#include "heed/backward.hpp"

namespace heed::python {

/// Options, and what they refer to, kept alive.
struct Arguments {
  AttentionOptions options;
  std::vector<Borrowed> borrowed;
  bool asked = false;  ///< for more than the output
  std::optional<Borrowed> out;
  nb::object out_object;  ///< as the caller gave it
};

/// Throws TypeError for a name that is no option, naming `function`, and for a value of the wrong type;
/// ValueError for a wrong value. None leaves an option at its default.
Arguments read_arguments(std::string_view function, const nb::kwargs& keywords);
void set_argument(std::string_view function, Arguments& arguments, std::string_view name, nb::handle value);

/// Names, one or several, of dq, dk, dv, dbias, dsinks.
GradientRequest gradients_named(nb::handle value);

/// Values of Python, with `name` in the message where they are of another type.
std::int64_t integer(std::string_view name, nb::handle value);
double number(std::string_view name, nb::handle value);
bool truth(std::string_view name, nb::handle value);
std::string text(std::string_view name, nb::handle value);
std::pair<nb::object, nb::object> two(std::string_view name, nb::handle value, std::string_view expected);
DType dtype(std::string_view name, nb::handle value);

}  // namespace heed::python
