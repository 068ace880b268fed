// Conversion of results to arrays of the caller's array library.
#include <array>
#include <memory>
#include <utility>

#include "arrays.hpp"
#include "fail.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

// Memory shared with Python: a tensor's own, or a part of `owner`.
struct Memory {
  Tensor tensor;
  MutableTensorView view;
  nb::object owner;
};

const char* format_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "d";
    case DType::f32:
      return "f";
    case DType::f16:
      return "e";
    case DType::bf16:
      return "H";  // as uint16 bits
    case DType::i64:
      return "q";
    case DType::i32:
      return "i";
    case DType::u8:
      return "B";
    case DType::boolean:
      return "?";
  }
  return "B";
}

dlpack::DataType code_of(DType dtype) {
  using dlpack::Code;
  Code code = Code::floating;
  if (dtype == DType::bf16) code = Code::bfloat;
  if (dtype == DType::i64 || dtype == DType::i32) code = Code::integer;
  if (dtype == DType::u8) code = Code::unsigned_integer;
  if (dtype == DType::boolean) code = Code::boolean;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(size_of(dtype) * 8), 1};
}

// Shape and strides for the consumer, valid as long as it uses them.
struct Layout {
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};

  dlpack::Tensor describe(const MutableTensorView& view) {
    std::copy(view.shape().begin(), view.shape().end(), shape.begin());
    std::copy(view.strides().begin(), view.strides().end(), strides.begin());
    return {view.data(), {}, view.rank(), code_of(view.dtype()), shape.data(), strides.data(), 0};
  }
};

// A tensor owned by a DLPack consumer.
struct Given {
  Tensor tensor;
  Layout layout;
  dlpack::ManagedVersioned managed;
};

dlpack::ManagedVersioned* give(Tensor&& tensor) {
  auto given = std::make_unique<Given>();
  given->tensor = std::move(tensor);
  given->managed.tensor = given->layout.describe(given->tensor.mutable_view());
  given->managed.context = given.get();
  given->managed.deleter = [](dlpack::ManagedVersioned* managed) {
    const std::unique_ptr<Given> owned(static_cast<Given*>(managed->context));
  };
  return &given.release()->managed;
}

// Memory of a Python object for consumers that support only DLPack 0.
struct Shown {
  Layout layout;
  dlpack::Managed managed;
  nb::object owner;
};

nb::object capsule_of(Memory& memory) {
  auto shown = std::make_unique<Shown>();
  shown->managed.tensor = shown->layout.describe(memory.view);
  shown->owner = nb::find(memory);
  shown->managed.context = shown.get();
  shown->managed.deleter = [](dlpack::Managed* managed) {
    const nb::gil_scoped_acquire gil;
    const std::unique_ptr<Shown> owned(static_cast<Shown*>(managed->context));
  };
  PyObject* capsule = PyCapsule_New(&shown->managed, "dltensor", [](PyObject* object) {
    if (PyCapsule_IsValid(object, "dltensor") == 0) return;  // the consumer took it and will call the deleter
    auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(object, "dltensor"));
    managed->deleter(managed);
  });
  if (capsule == nullptr) throw nb::python_error();
  (void)shown.release();
  return nb::steal(capsule);
}

struct Extents {
  std::array<Py_ssize_t, kMaxRank> shape{};
  std::array<Py_ssize_t, kMaxRank> strides{};
};

int get_buffer(PyObject* self, Py_buffer* buffer, int) {
  const Memory* memory = nb::inst_ptr<Memory>(self);
  const MutableTensorView& view = memory->view;
  const auto width = static_cast<Py_ssize_t>(size_of(view.dtype()));
  std::unique_ptr<Extents> extents;
  try {
    extents = std::make_unique<Extents>();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return -1;
  }
  *buffer = Py_buffer{};
  for (int axis = 0; axis < view.rank(); ++axis) {
    extents->shape[static_cast<std::size_t>(axis)] = view.shape()[axis];
    extents->strides[static_cast<std::size_t>(axis)] = view.strides()[axis] * width;
  }
  buffer->buf = view.data();
  buffer->obj = nb::handle(self).inc_ref().ptr();
  buffer->len = view.count() * width;
  buffer->itemsize = width;
  buffer->ndim = view.rank();
  buffer->format = const_cast<char*>(format_of(view.dtype()));
  buffer->shape = extents->shape.data();
  buffer->strides = extents->strides.data();
  buffer->internal = extents.release();
  return 0;
}

void release_buffer(PyObject*, Py_buffer* buffer) {
  const std::unique_ptr<Extents> extents(static_cast<Extents*>(buffer->internal));
}

// An attribute of a module, looked up once and kept while the process runs. (A static with an initialiser
// would hold its lock while the import lets other threads run.)
nb::handle keep(PyObject*& place, const char* module, const char* name) {
  if (place == nullptr) place = nb::object(nb::module_::import_(module).attr(name)).release().ptr();
  return place;
}

nb::handle bfloat16() {
  static PyObject* place = nullptr;
  try {
    return keep(place, "ml_dtypes", "bfloat16");
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    throw nb::import_error(
        "NumPy has no bfloat16, and ml_dtypes, which has one, is not installed: pip install ml_dtypes");
  }
}

nb::object array_of(nb::object&& memory, DType dtype) {
  static PyObject* asarray = nullptr;
  nb::object array = keep(asarray, "numpy", "asarray")(std::move(memory));
  return dtype == DType::bf16 ? array.attr("view")(bfloat16()) : array;
}

const dlpack::Exchange* torch_exchange() {
  static bool looked = false;
  static const dlpack::Exchange* exchange = nullptr;
  if (!looked) exchange = exchange_of(nb::module_::import_("torch").attr("Tensor"));
  looked = true;
  return exchange;
}

nb::object torch_tensor(Tensor&& tensor, const dlpack::Exchange& exchange) {
  dlpack::ManagedVersioned* given = give(std::move(tensor));
  void* object = nullptr;
  if (exchange.managed_to_object(given, &object) != 0) {
    given->deleter(given);
    throw nb::python_error();
  }
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace

nb::object to_python(Tensor&& tensor, Kind kind) {
  if (kind == Kind::torch)
    if (const dlpack::Exchange* exchange = torch_exchange())
      return torch_tensor(std::move(tensor), *exchange);
  const DType dtype = tensor.dtype();
  nb::object memory = nb::cast(Memory{std::move(tensor), {}, {}});
  auto* held = nb::inst_ptr<Memory>(memory);
  held->view = held->tensor.mutable_view();
  if (kind == Kind::numpy) return array_of(std::move(memory), dtype);
  static PyObject* from_torch = nullptr;
  static PyObject* from_jax = nullptr;
  if (kind == Kind::torch) return keep(from_torch, "torch", "from_dlpack")(memory);
  return keep(from_jax, "jax.dlpack", "from_dlpack")(memory);
}

nb::object numpy_view(const MutableTensorView& view, nb::handle owner) {
  return array_of(nb::cast(Memory{{}, view, nb::borrow(owner)}), view.dtype());
}

void define_memory(nb::module_& module) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                {0, nullptr}};
  nb::class_<Memory>(module, "Memory", nb::type_slots(slots))
      .def(NotPickled("Memory cannot be copied or pickled; copy or pickle the array that uses it"))
      .def("__dlpack__", [](Memory& memory, const nb::kwargs&) { return capsule_of(memory); })
      .def("__dlpack_device__", [](const Memory&) { return nb::make_tuple(dlpack::kCpu, 0); });
}

}  // namespace heed::python
