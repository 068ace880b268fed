// The parts of the extension, each of which adds its own to the module.
#pragma once

#include <nanobind/nanobind.h>

#include "arrays.hpp"
#include "heed/attention.hpp"
#include "options.hpp"

namespace heed::python {

/// What a call computed, as arrays; what was not asked for is no object.
struct Result : ResultSet<nb::object> {
  std::string kernel;
  std::string isa;
  int threads = 1;
  std::int64_t recomputed_rows = 0;
};

std::string_view name_of_kernel(Kernel kernel);

/// All but the output.
Result to_result(AttentionResult&& result, const AttentionOptions& options, Kind kind);

void define_attention(nb::module_& module);
void define_backward(nb::module_& module);
void define_masks(nb::module_& module);
void define_report(nb::module_& module);
void define_model(nb::module_& module);  ///< only in a build with heed::nn
void define_nn(nb::module_& module);     ///< the same

}  // namespace heed::python
