// The parts of the extension; each adds its definitions to the module.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/plan.hpp"
#include "options.hpp"
#include "saved.hpp"

namespace heed::python {

/// The results of a call as arrays. Results that were not requested are null.
struct Result : ResultSet<nb::object> {
  std::string kernel;
  std::string isa;
  int threads = 1;
  std::int64_t recomputed_rows = 0;
};

std::string_view name_of_kernel(Kernel kernel);

/// Converts all results except the output.
Result to_result(AttentionResult&& result, const AttentionOptions& options, Kind kind);

/// Conversion of a result to its pickled state, and back with checks.
nb::dict state_of(const Result& result);
Result result_from(const ResultFields& fields);

/// "AttentionResult(output (1, 2, 3, 4), lse (1, 2, 3), fused kernel, avx2)"
std::string text_of(const Result& result);

/// The gradients as arrays; None if not requested.
struct Gradients {
  nb::object dq = nb::none();
  nb::object dk = nb::none();
  nb::object dv = nb::none();
  nb::object dbias = nb::none();
  nb::object dsinks = nb::none();
  nb::object ddecay = nb::none();
  std::string kernel;
  std::string isa;
  int threads = 1;
  std::int64_t recomputed_rows = 0;
};

struct GradientField {
  const char* name;
  nb::object Gradients::*member;
  const char* meaning;
};

constexpr GradientField kGradientFields[] = {
    {"dq", &Gradients::dq, "[B, H, Lq, D]"},
    {"dk", &Gradients::dk, "[B, Hkv, Lk, D]"},
    {"dv", &Gradients::dv, "[B, Hkv, Lk, Dv]"},
    {"dbias", &Gradients::dbias, "shape of bias, with size 1 for axes that it repeats (stride 0)"},
    {"dsinks", &Gradients::dsinks, "shape of sinks"},
    {"ddecay", &Gradients::ddecay, "shape of decay, with size 1 for axes that it repeats (stride 0)"},
};

/// The requested gradients: by default dq, dk and dv.
GradientRequest requested(nb::handle gradients, const AttentionOptions& options);
Gradients to_gradients(AttentionGradients&& from, const GradientRequest& request, Kind kind);
std::string text_of(const Gradients& gradients);
nb::dict state_of(const Gradients& gradients);
Gradients gradients_from(const ResultFields& fields);

/// Arrays that a call reads or writes, kept alive until it ends.
class Arrays {
 public:
  TensorView read(std::string_view name, nb::handle object) { return keep(Borrowed(name, object)).view(); }
  std::optional<TensorView> read_where_given(std::string_view name, nb::handle object) {
    if (object.is_none()) return std::nullopt;
    return read(name, object);
  }
  MutableTensorView write_where_given(std::string_view name, nb::handle object) {
    if (object.is_none()) return {};
    return keep(Borrowed(name, object, Purpose::write)).mutable_view();
  }

 private:
  const Borrowed& keep(Borrowed&& borrowed) {
    kept_.push_back(std::move(borrowed));
    return kept_.back();
  }

  std::vector<Borrowed> kept_;
};

/// Arguments of a backward pass; the last two may be None.
struct BackwardArrays {
  nb::handle q, k, v, output, lse, grad_output, grad_lse, grad_weights;
};
AttentionBackwardInputs read_inputs(Arrays& arrays, const BackwardArrays& from);

/// Views of the caller's memory for the output, and of `memory`, which is allocated, for the other results.
/// Results per key have `keys` columns; weights and scores have `all_keys`.
AttentionOutputs outputs_beside(const TensorView& query, std::int64_t keys, std::int64_t all_keys,
                                const Arguments& arguments, AttentionResult& memory);
/// A call that writes the output to the caller's memory and allocates its other results.
AttentionResult beside_output(const TensorView& query, std::int64_t keys, const Arguments& arguments,
                              const std::function<AttentionRun(const AttentionOutputs&)>& run_into);
/// Returns the output alone, or an AttentionResult if other results were requested.
nb::object give(AttentionResult&& result, const Arguments& arguments, Kind kind);

/// heed.attention over a KvCache.
bool is_cache(nb::handle object);
nb::object attention_over_cache(nb::handle q, nb::handle cache, const nb::kwargs& keywords);
AttentionPlan plan_over_cache(nb::handle q, nb::handle cache, const nb::kwargs& keywords);
/// Throws if q or k is missing, in the words of attention() and plan_attention().
void require_inputs(const char* function, nb::handle q, nb::handle k, nb::handle v,
                    const nb::kwargs& keywords);

void define_attention(nb::module_& module);
void define_backward(nb::module_& module);
void define_kv_cache(nb::module_& module);
void define_plan(nb::module_& module);
void define_masks(nb::module_& module);
void define_report(nb::module_& module);
void define_model(nb::module_& module);           ///< only in a build with heed::nn
void define_model_cause(nb::module_& module);     ///< the same
void define_model_generate(nb::module_& module);  ///< the same
void define_nn(nb::module_& module);              ///< the same
void define_tokenizer(nb::module_& module);       ///< the same
void define_pretrained(nb::module_& module);      ///< the same

}  // namespace heed::python
