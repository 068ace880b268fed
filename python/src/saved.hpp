// How objects of the extension are copied and pickled. A pickle is plain data that is checked before it is
// believed: {name: (dtype, shape, bytes)} of tensors, and what else a class needs.
#pragma once

#include <nanobind/nanobind.h>

#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "fail.hpp"

namespace heed::python {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

nb::dict saved(const NamedTensors& tensors);

/// Throws TypeError where a pickle has another type of state; `expected`: "a dict".
void check_state(bool holds, nb::handle state, const char* expected);

/// The tensors of a pickle, in the memory that it has.
class Restored {
 public:
  /// Throws for what saved() does not give.
  explicit Restored(nb::handle state);
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

  [[nodiscard]] const std::vector<std::pair<std::string, TensorView>>& tensors() const { return tensors_; }
  /// nullptr: there is none of this name.
  [[nodiscard]] const TensorView* find(std::string_view name) const;
  [[nodiscard]] const TensorView& at(std::string_view name) const;

 private:
  nb::object state_;
  std::vector<std::pair<std::string, TensorView>> tensors_;
};

/// What a pickle says of results: arrays and None, texts and whole numbers, by name.
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

/// A class derived in Python may hold what its base knows nothing of; what a pickle failed to make holds
/// nothing.
template <class C>
void check_own_class(nb::handle self) {
  if (!nb::inst_ready(self))
    fail_type("an object of type ", nb::inst_name(self).c_str(), " was never made; one that was is expected");
  if (!self.type().is(nb::type<C>()))
    fail_type("an object of type ", nb::inst_name(self).c_str(), " is to be copied or pickled by its base ",
              nb::type_name(nb::type<C>()).c_str(), "; __reduce__ of its own is expected");
}

/// .def(pickled(get, set)): a pickle holds get(object), and set(state) makes an object of that again.
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

/// .def(copied(copy)): copies are copy(object), which shares nothing.
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

/// .def(CopiedAsItself()): nothing changes an object, so that it is its own copy.
struct CopiedAsItself : nb::def_visitor<CopiedAsItself> {
  template <class Class, class... Extra>
  void execute(Class& in, const Extra&...) const {
    in.def("__copy__", [](nb::handle self) { return nb::borrow(self); });
    in.def("__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); });
  }
};

/// .def(NotPickled("why, and what is expected")).
struct NotPickled : nb::def_visitor<NotPickled> {
  explicit NotPickled(const char* reason) : why(reason) {}

  template <class Class, class... Extra>
  void execute(Class& in, const Extra&...) const {
    in.def("__reduce__", [why = why](nb::handle) -> nb::object { fail_type(why); });
  }

  const char* why;
};

}  // namespace heed::python
