// Recognises plain tensors with a few cheap checks. heed/_torch_tensors.py decides about all others.
#include "torch_tensor.hpp"

#include <cstdint>

#include "core/message.hpp"
#include "fail.hpp"

namespace heed::python {
namespace {

namespace nb = nanobind;

// Functions and names of PyTorch that identify a plain tensor.
struct Questions {
  nb::module_ core = nb::module_::import_("torch._C");
  nb::module_ ours = nb::module_::import_("heed._torch_tensors");
  nb::module_ forward_mode = nb::module_::import_("torch.autograd.forward_ad");
  nb::object tracing_state = core.attr("_get_tracing_state");
  nb::object modes = core.attr("_len_torch_dispatch_stack");
  nb::object readable = ours.attr("readable");
  nb::object number = ours.attr("number");
  nb::object count_change = ours.attr("count_change");
  nb::object forward_level = nb::str("_current_level");
  nb::object requires_grad = nb::str("requires_grad");
  nb::object is_negated = nb::str("is_neg");
  nb::object storage = nb::str("untyped_storage");
  nb::object bytes = nb::str("nbytes");
  nb::object offset = nb::str("storage_offset");
};

// Looked up once and kept while the process runs. (A static with an initialiser would hold its lock while the
// imports let other threads run.)
const Questions& questions() {
  static const Questions* kept = nullptr;
  if (kept == nullptr) kept = new Questions;
  return *kept;
}

std::int64_t whole(nb::handle number) { return nb::cast<std::int64_t>(number); }

nb::str text(std::string_view name) { return nb::str(name.data(), name.size()); }

// Only for torch.Tensor itself, not for subclasses.
bool is_plain(nb::handle tensor) {
  const Questions& ask = questions();
  return tensor.attr(ask.requires_grad).is(Py_False) && tensor.attr(ask.is_negated)().is(Py_False) &&
         ask.tracing_state().is_none() && whole(ask.modes()) == 0 &&
         whole(ask.forward_mode.attr(ask.forward_level)) < 0;
}

}  // namespace

nb::object readable_tensor(std::string_view name, nb::handle tensor, bool is_usual, bool in_place) {
  if (is_usual && is_plain(tensor)) return nb::borrow(tensor);
  return questions().readable(text(name), tensor, in_place);
}

void check_storage(std::string_view name, nb::handle tensor, const TensorView& view) {
  const Questions& ask = questions();
  std::int64_t last = whole(tensor.attr(ask.offset)());
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.shape()[axis] == 0) return;
    last += (view.shape()[axis] - 1) * view.strides()[axis];
  }
  const std::int64_t needed = (last + 1) * static_cast<std::int64_t>(size_of(view.dtype()));
  const std::int64_t held = whole(tensor.attr(ask.storage)().attr(ask.bytes)());
  if (needed > held)
    fail(name, " needs ", detail::counted(needed, "byte"), " of its storage, which was cut to ", held,
         "; a tensor within its storage is expected");
}

void count_change_of(nb::handle tensor) { questions().count_change(tensor); }

nb::object number_of_tensor(std::string_view name, nb::handle tensor) {
  return questions().number(text(name), tensor);
}

}  // namespace heed::python
