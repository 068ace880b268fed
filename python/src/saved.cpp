#include "saved.hpp"

#include <algorithm>

#include "options.hpp"

namespace heed::python {
namespace {

TensorView view_of_saved(const std::string& name, nb::handle entry) {
  const auto check_type = [&](bool holds) {
    if (!holds)
      fail_type(name, " of the pickled state has the wrong type; a tuple (dtype, shape, bytes) is expected");
  };
  check_type(nb::isinstance<nb::tuple>(entry) && nb::len(entry) == 3);
  const nb::object type = entry[0], sizes = entry[1], bytes = entry[2];
  check_type(nb::isinstance<nb::str>(type) && nb::isinstance<nb::tuple>(sizes) &&
             nb::isinstance<nb::bytes>(bytes));
  const std::optional<DType> dtype = dtype_named(text(name, type));
  if (!dtype)
    fail(name, " of the pickled state has dtype ", nb::repr(type).c_str(),
         "; the name of a tensor's dtype is expected");
  Dims shape;
  for (const nb::handle size : sizes) {
    check_type(nb::isinstance<nb::int_>(size));
    shape.push_back(integer(name, size));
  }
  const auto data = nb::borrow<nb::bytes>(bytes);
  const std::size_t width = size_of(*dtype);
  if (data.size() % width != 0 || data.size() / width != static_cast<std::size_t>(element_count(shape)))
    fail(name, " of the pickled state is ", name_of(*dtype), " ", to_string(shape), " with ", data.size(),
         " bytes; the bytes of all its elements are expected");
  const auto* begin = reinterpret_cast<const std::uint8_t*>(data.c_str());
  const auto is_no_bool = [](std::uint8_t byte) { return byte > 1; };
  if (*dtype == DType::boolean && std::any_of(begin, begin + data.size(), is_no_bool))
    fail(name, " of the pickled state contains a bool that is neither 0 nor 1; 0 or 1 is expected");
  return {begin, *dtype, shape};
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
    fail_type("the pickled state contains the type ", nb::inst_name(state).c_str(), "; ", expected,
              " is expected");
}

Restored::Restored(nb::handle state) : state_(nb::borrow(state)) {
  check_state(nb::isinstance<nb::dict>(state), state, "a dict");
  for (const auto& [key, entry] : nb::borrow<nb::dict>(state)) {
    check_state(nb::isinstance<nb::str>(key), key, "a name");
    const std::string name = text("a name", key);
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
  if (!value.is_valid()) fail("the pickled state lacks '", name, "'; an entry of that name is expected");
  return value;
}

nb::object ResultFields::array(const char* name) const {
  nb::object value = at(name);
  if (!is_array(value) || !nb::hasattr(value, "shape"))  // bytes support the buffer protocol too
    fail_type(name, " of the pickled state is of type ", nb::inst_name(value).c_str(),
              "; an array is expected");
  return value;
}

nb::object ResultFields::array_or_none(const char* name) const {
  return at(name).is_none() ? nb::none() : array(name);
}

std::string ResultFields::text(const char* name) const { return python::text(name, at(name)); }
std::int64_t ResultFields::integer(const char* name) const { return python::integer(name, at(name)); }

const TensorView& Restored::at(std::string_view name) const {
  const TensorView* found = find(name);
  if (found == nullptr) fail("the pickled state lacks '", name, "'; an entry of that name is expected");
  return *found;
}

}  // namespace heed::python
