// The parts of the extension, each of which adds its own to the module.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

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

/// A call whose output goes to the caller's memory, and its other results beside it.
AttentionResult beside_output(const TensorView& query, std::int64_t keys, const Arguments& arguments,
                              const std::function<AttentionRun(const AttentionOutputs&)>& run_into);
/// The output alone, or an AttentionResult where more was asked for.
nb::object give(AttentionResult&& result, const Arguments& arguments, Kind kind);

/// heed.attention over a KvCache.
bool is_cache(nb::handle object);
nb::object attention_over_cache(nb::handle q, nb::handle cache, const nb::kwargs& keywords);

void define_attention(nb::module_& module);
void define_backward(nb::module_& module);
void define_kv_cache(nb::module_& module);
void define_masks(nb::module_& module);
void define_report(nb::module_& module);
void define_model(nb::module_& module);           ///< only in a build with heed::nn
void define_model_cause(nb::module_& module);     ///< the same
void define_model_generate(nb::module_& module);  ///< the same
void define_nn(nb::module_& module);              ///< the same
void define_text_tokenizer(nb::module_& module);  ///< the same
void define_pretrained(nb::module_& module);      ///< the same

}  // namespace heed::python
