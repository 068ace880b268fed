// Copying and pickling for the classes of the extension. Pickled tensors are plain data, {name: (dtype,
// shape, bytes)}. A pickled state is checked before it is used.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "fail.hpp"

namespace heed::python {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

nb::dict saved(const NamedTensors& tensors);

/// Throws TypeError unless `holds`. `expected` names the right type: "a dict".
void check_state(bool holds, nb::handle state, const char* expected);

/// Views of the tensors of a pickled state.
class Restored {
 public:
  /// Throws if the state is not from saved().
  explicit Restored(nb::handle state);
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

  [[nodiscard]] const std::vector<std::pair<std::string, TensorView>>& tensors() const { return tensors_; }
  /// nullptr if there is no such tensor.
  [[nodiscard]] const TensorView* find(std::string_view name) const;
  [[nodiscard]] const TensorView& at(std::string_view name) const;

 private:
  nb::object state_;
  std::vector<std::pair<std::string, TensorView>> tensors_;
};

/// The fields of a pickled result: arrays, None, text and whole numbers.
class ResultFields {
 public:
  explicit ResultFields(nb::handle state) : state_(nb::borrow(state)) {
    check_state(nb::isinstance<nb::dict>(state), state, "a dict");
  }
  [[nodiscard]] nb::object at(const char* name) const;
  [[nodiscard]] nb::object array(const char* name) const;
  [[nodiscard]] nb::object array_or_none(const char* name) const;
  [[nodiscard]] std::string text(const char* name) const;
  [[nodiscard]] std::int64_t integer(const char* name) const;

 private:
  nb::object state_;
};

/// Refuses subclasses written in Python, whose own attributes would be lost, and uninitialised objects.
template <class C>
void check_own_class(nb::handle self) {
  if (!nb::inst_ready(self))
    fail_type("the ", nb::inst_name(self).c_str(),
              " object is not initialised; an initialised one is expected");
  if (!self.type().is(nb::type<C>()))
    fail_type(nb::inst_name(self).c_str(), " would be copied or pickled as its base ",
              nb::type_name(nb::type<C>()).c_str(), "; a __reduce__ method of its own is expected");
}

/// .def(pickled(get, set)) pickles the state get(object); set(state) rebuilds the object.
template <class Get, class Set>
struct Pickled : nb::def_visitor<Pickled<Get, Set>> {
  Pickled(Get to_get, Set to_set) : get(to_get), set(to_set) {}

  template <class Class, class... Extra>
  void execute(Class& in, const Extra&...) const {
    using C = typename Class::Type;
    in.def("__getstate__", [get = get](nb::handle self) {
      check_own_class<C>(self);
      return get(nb::cast<const C&>(self));
    });
    in.def(
        "__setstate__", [set = set](C* self, nb::handle state) { new (self) C(set(state)); },
        nb::arg("state").none());
  }

  Get get;
  Set set;
};
template <class Get, class Set>
Pickled<Get, Set> pickled(Get get, Set set) {
  return {get, set};
}

/// .def(copied(copy)) copies with copy(object), which must share nothing that can change.
template <class Copy>
struct Copied : nb::def_visitor<Copied<Copy>> {
  explicit Copied(Copy to_copy) : copy(to_copy) {}

  template <class Class, class... Extra>
  void execute(Class& in, const Extra&...) const {
    using C = typename Class::Type;
    const auto made = [copy = copy](nb::handle self) {
      check_own_class<C>(self);
      return copy(nb::cast<const C&>(self));
    };
    in.def("__copy__", made);
    in.def("__deepcopy__", [made](nb::handle self, nb::handle) { return made(self); });
  }

  Copy copy;
};
template <class Copy>
Copied<Copy> copied(Copy copy) {
  return Copied<Copy>(copy);
}

/// .def(CopiedAsItself()) is for immutable classes: a copy is the object itself.
struct CopiedAsItself : nb::def_visitor<CopiedAsItself> {
  template <class Class, class... Extra>
  void execute(Class& in, const Extra&...) const {
    in.def("__copy__", [](nb::handle self) { return nb::borrow(self); });
    in.def("__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); });
  }
};

/// .def(NotPickled(why)) refuses to pickle, with one sentence.
struct NotPickled : nb::def_visitor<NotPickled> {
  explicit NotPickled(const char* reason) : why(reason) {}

  template <class Class, class... Extra>
  void execute(Class& in, const Extra&...) const {
    in.def("__reduce__", [why = why](nb::handle) -> nb::object { fail_type(why); });
  }

  const char* why;
};

}  // namespace heed::python
