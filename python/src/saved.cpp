#include "saved.hpp"

#include <algorithm>

#include "options.hpp"

namespace heed::python {
namespace {

TensorView view_of_saved(const std::string& name, nb::handle entry) {
  const auto refuse_entry = [&]() {
    fail_type("the pickle has ", name, " that is no (dtype, shape, bytes); such a tuple is expected");
  };
  if (!nb::isinstance<nb::tuple>(entry) || nb::len(entry) != 3) refuse_entry();
  const nb::object type = entry[0], sizes = entry[1], bytes = entry[2];
  if (!nb::isinstance<nb::str>(type) || !nb::isinstance<nb::tuple>(sizes) ||
      !nb::isinstance<nb::bytes>(bytes))
    refuse_entry();
  const std::optional<DType> known = dtype_named(nb::cast<std::string>(type));
  if (!known)
    fail("the pickle has ", name, " of dtype ", nb::repr(type).c_str(), "; that of a tensor is expected");
  Dims shape;
  for (const nb::handle size : sizes) {
    if (!nb::isinstance<nb::int_>(size)) refuse_entry();
    shape.push_back(integer(name, size));
  }
  const auto data = nb::borrow<nb::bytes>(bytes);
  const auto count = static_cast<std::size_t>(element_count(shape));
  if (data.size() / size_of(*known) != count || data.size() % size_of(*known) != 0)
    fail("the pickle has ", data.size(), " bytes of ", name, ", ", name_of(*known), " ", to_string(shape),
         "; as many as it has elements are expected");
  const auto* begin = reinterpret_cast<const std::uint8_t*>(data.c_str());
  if (*known == DType::boolean &&
      std::any_of(begin, begin + data.size(), [](std::uint8_t bit) { return bit > 1; }))
    fail("the pickle has numbers in ", name, ", which is bool; 0 and 1 are expected");
  return {begin, *known, shape};
}

}  // namespace

nb::dict saved(const NamedTensors& tensors) {
  nb::dict all;
  for (const auto& [name, tensor] : tensors) {
    nb::list shape;
    for (const std::int64_t size : tensor.shape()) shape.append(size);
    const auto size = static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
    all[name.c_str()] = nb::make_tuple(std::string(name_of(tensor.dtype())), nb::tuple(shape),
                                       nb::bytes(tensor.view().data(), size));
  }
  return all;
}

void check_state(bool holds, nb::handle state, const char* expected) {
  if (!holds)
    fail_type("the pickle has a state of type ", nb::inst_name(state).c_str(), "; ", expected,
              " is expected");
}

Restored::Restored(nb::handle state) : state_(nb::borrow(state)) {
  check_state(nb::isinstance<nb::dict>(state), state, "a dict");
  for (const auto& [key, entry] : nb::borrow<nb::dict>(state)) {
    check_state(nb::isinstance<nb::str>(key), key, "a name");
    const auto name = nb::cast<std::string>(key);
    tensors_.emplace_back(name, view_of_saved(name, entry));
  }
}

const TensorView* Restored::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& one) { return one.first == name; });
  return found == tensors_.end() ? nullptr : &found->second;
}

nb::object ResultFields::at(const char* name) const {
  nb::object value = nb::borrow<nb::dict>(state_).get(name, nb::object());
  if (!value.is_valid()) fail("the pickle has no ", name, ", which is expected");
  return value;
}

nb::object ResultFields::array(const char* name) const {
  nb::object value = at(name);
  if (!is_array(value) || !nb::hasattr(value, "shape"))  // bytes have a buffer, too
    fail_type("the pickle has ", name, " of type ", nb::inst_name(value).c_str(), "; an array is expected");
  return value;
}

nb::object ResultFields::array_or_none(const char* name) const {
  return at(name).is_none() ? nb::none() : array(name);
}

std::string ResultFields::text(const char* name) const { return python::text(name, at(name)); }
std::int64_t ResultFields::integer(const char* name) const { return python::integer(name, at(name)); }

const TensorView& Restored::at(std::string_view name) const {
  const TensorView* found = find(name);
  if (found == nullptr) fail("the pickle has no ", name, ", which is expected");
  return *found;
}

}  // namespace heed::python
