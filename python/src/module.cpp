// The extension module heed._heed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "attention/isa/dispatch.hpp"
#include "calls.hpp"
#include "heed/attention/targets.hpp"
#include "heed/error.hpp"
#include "heed/info.hpp"
#include "heed/version.hpp"

namespace {

PyObject* exception_for(heed::ErrorCode code) {
  switch (code) {
    case heed::ErrorCode::invalid_argument:
      return PyExc_ValueError;
    case heed::ErrorCode::io:
      return PyExc_OSError;
    case heed::ErrorCode::out_of_memory:
      return PyExc_MemoryError;
    case heed::ErrorCode::internal:
      break;
  }
  return PyExc_RuntimeError;
}

// An error's sentence with the names of arguments in Python.
std::string in_python(std::string sentence) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"query_segments", "cu_seqlens of queries"},
      {"key_segments", "cu_seqlens of keys"},
      {"outputs.output ", "out "},
      {"dropout.probability", "dropout"}};
  for (const auto& [name, of_python] : kNames)
    for (std::size_t at = 0; (at = sentence.find(name, at)) != std::string::npos; at += of_python.size())
      sentence.replace(at, name.size(), of_python);
  return sentence;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const heed::Error& error) {
    PyErr_SetString(exception_for(error.code()), in_python(error.what()).c_str());
  }
}

nanobind::dict info() {
  const heed::Info info = heed::info();
  nanobind::dict all;
  all["version"] = info.version;
  all["compiler"] = info.compiler;
  all["build_type"] = info.build_type;
  all["flags"] = info.flags;
  all["processor"] = info.processor;
  all["features"] = info.features;
  all["kernel"] = info.kernel;
  all["isa"] = info.isa;
  all["threads"] = info.threads;
  return all;
}

nanobind::list targets() {
  nanobind::list all;
  for (const heed::Target& target : heed::targets()) {
    nanobind::dict one;
    one["name"] = target.name;
    one["description"] = target.description;
    one["required"] = target.required;
    one["available"] = target.available;
    one["chosen"] = target.chosen;
    one["why"] = target.why;
    nanobind::list formats;
    for (const heed::TargetFormat& format : target.formats) {
      nanobind::dict entry;
      entry["dtype"] = format.dtype;
      entry["format"] = format.format;
      entry["because"] = format.because;
      formats.append(entry);
    }
    one["formats"] = formats;
    all.append(one);
  }
  return all;
}

}  // namespace

NB_MODULE(_heed, module) {
  nanobind::register_exception_translator(translate);
  // Objects that user code keeps until the process ends are not our leaks, but nanobind would print forty
  // lines about them. tests/test_exit.py enables its warnings to find our own leaks.
  nanobind::set_leak_warnings(false);
  module.def("set_leak_warnings", nanobind::set_leak_warnings);
  module.attr("__version__") = std::string(heed::version());
  module.def("info", info);
  module.def("targets", targets, "The targets of the fused kernel, best first, each a dict.");
  module.def(
      "set_target", [](const std::string& name) { heed::set_target(name); }, nanobind::arg("name"),
      "Makes later calls use this target; must not run during a call.");
  module.def("target", [] { return std::string(heed::detail::cpu::kernels().name()); });
  heed::python::define_memory(module);
  heed::python::define_masks(module);
  heed::python::define_kv_cache(module);
  heed::python::define_plan(module);
  heed::python::define_attention(module);
  heed::python::define_backward(module);
  heed::python::define_report(module);
#ifdef HEED_PYTHON_NN
  heed::python::define_nn(module);
  heed::python::define_model(module);
  heed::python::define_tokenizer(module);
  heed::python::define_pretrained(module);
  heed::python::define_model_cause(module);
  heed::python::define_model_generate(module);
#endif
}
