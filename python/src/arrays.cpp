#include "arrays.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "fail.hpp"
#include "torch_tensor.hpp"

namespace heed::python {
namespace {

// "module.sub.Name" -> "module"
std::string root_module(nb::handle type) {
  const nb::object module = nb::getattr(type, "__module__", nb::none());
  if (!nb::isinstance<nb::str>(module)) return {};
  const std::string name = nb::cast<std::string>(module);
  return name.substr(0, name.find('.'));
}

bool is_type(nb::handle type, std::string_view module, std::string_view name) {
  return root_module(type) == module && nb::cast<std::string>(type.attr("__name__")) == name;
}

bool descends_from(nb::handle type, std::string_view module, std::string_view name) {
  for (const nb::handle base : nb::borrow<nb::tuple>(type.attr("__mro__")))
    if (is_type(base, module, name)) return true;
  return false;
}

TypeInfo examine(nb::handle object) {
  const nb::handle type = object.type();
  TypeInfo info;
  info.type = type.inc_ref();  // keeps the type alive forever, so that its address stays unique
  info.has_buffer = PyObject_CheckBuffer(object.ptr()) != 0;
  info.has_dlpack = nb::hasattr(type, "__dlpack__");
  const std::string root = root_module(type);
  if (root == "jax" || root == "jaxlib") info.kind = Kind::jax;
  info.has_mask = info.has_buffer && descends_from(type, "numpy", "MaskedArray");
  if (info.has_dlpack && !info.has_buffer) {
    info.exchange = exchange_of(type);
    info.is_usual_torch = is_type(type, "torch", "Tensor");
    info.is_torch = descends_from(type, "torch", "Tensor");
    if (info.exchange != nullptr || info.is_torch) info.kind = Kind::torch;
  }
  return info;
}

std::optional<DType> dtype_of_format(std::string_view format) {
  if (format.empty()) return DType::u8;
  if (format.size() == 2 && (format[0] == '@' || format[0] == '=' || format[0] == '<'))
    format.remove_prefix(1);
  if (format.size() != 1) return std::nullopt;
  switch (format[0]) {
    case 'd':
      return DType::f64;
    case 'f':
      return DType::f32;
    case 'e':
      return DType::f16;
    case 'q':
      return DType::i64;
    case 'l':
      return sizeof(long) == 8 ? DType::i64 : DType::i32;
    case 'i':
      return DType::i32;
    case 'B':
      return DType::u8;
    case '?':
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

std::optional<DType> dtype_of_code(const dlpack::DataType& type) {
  constexpr std::pair<DType, dlpack::Code> kCodes[] = {
      {DType::f64, dlpack::Code::floating},        {DType::f32, dlpack::Code::floating},
      {DType::f16, dlpack::Code::floating},        {DType::bf16, dlpack::Code::bfloat},
      {DType::i64, dlpack::Code::integer},         {DType::i32, dlpack::Code::integer},
      {DType::u8, dlpack::Code::unsigned_integer}, {DType::boolean, dlpack::Code::boolean}};
  for (const auto& [dtype, code] : kCodes)
    if (static_cast<std::uint8_t>(code) == type.code && size_of(dtype) * 8 == type.bits && type.lanes == 1)
      return dtype;
  return std::nullopt;
}

// The buffer protocol shows the numbers below the mask of a numpy.ma.MaskedArray, too.
void refuse_masked(std::string_view name, nb::handle object) {
  if (nb::cast<bool>(nb::module_::import_("numpy.ma").attr("is_masked")(object)))
    fail(name, " is a masked array with masked elements; a plain array is expected, as filled() returns");
}

// The lists make an array of `axes` axes. A list may hold itself, so no part is searched deeper than that.
void refuse_masked_parts(std::string_view name, nb::handle lists, std::size_t axes) {
  for (const nb::handle part : lists) {
    if (nb::isinstance<nb::list>(part) || nb::isinstance<nb::tuple>(part)) {
      if (axes > 1) refuse_masked_parts(name, part, axes - 1);
    } else if (PyObject_CheckBuffer(part.ptr()) != 0 && array_type(part).has_mask) {
      refuse_masked(name, part);
    }
  }
}

// Throws with the first line of the array library's current Python exception.
[[noreturn]] void refuse_unreadable(std::string_view name, std::string_view how) {
  const nb::python_error error;
  const std::string why = nb::cast<std::string>(nb::str(error.value()));
  fail(name, " cannot be ", how, " in place: ", why.substr(0, why.find('\n')));
}

// `format` is the buffer's, for objects without a dtype, such as a memoryview.
[[noreturn]] void refuse_dtype(std::string_view name, nb::handle object, const char* format = "unknown") {
  const nb::object dtype = nb::getattr(object, "dtype", nb::str(format));
  fail(name, " has dtype ", nb::cast<std::string>(nb::str(dtype)),
       "; float64, float32, float16, bfloat16, int64, int32, uint8 or bool in this machine's byte order is "
       "expected");
}

void check_rank(std::string_view name, int rank) {
  if (rank > kMaxRank) fail(name, " has ", rank, " axes; at most ", kMaxRank, " are expected");
}

bool is_readable_dtype(nb::handle object) {
  constexpr std::string_view kNames[] = {"float64", "float32", "float16", "bfloat16",
                                         "int64",   "int32",   "uint8",   "bool"};
  const nb::error_scope pending;  // keeps the current exception
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  return dtype.is_none() || std::ranges::count(kNames, nb::cast<std::string>(nb::str(dtype))) != 0;
}

// Throws for an object without a buffer: because of its dtype, or for the reason of the current exception.
[[noreturn]] void refuse_buffer(std::string_view name, nb::handle object, bool writable) {
  if (is_readable_dtype(object)) refuse_unreadable(name, writable ? "written" : "read");
  PyErr_Clear();
  refuse_dtype(name, object);
}

// NumPy has no bfloat16. The buffer protocol refuses ml_dtypes' bfloat16, so it is read as uint16 bits.
nb::object bits_of_bfloat16(nb::handle object) {
  const nb::error_scope pending;  // keeps the current exception
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  if (dtype.is_none() || nb::cast<std::string>(nb::str(dtype)) != "bfloat16") return {};
  return object.attr("view")("uint16");
}

// NumPy gives arrays without elements strides of 0, which would look like an axis that is shared.
MutableTensorView view_of(void* data, DType dtype, const Dims& shape, const Dims& strides) {
  return element_count(shape) == 0 ? MutableTensorView(data, dtype, shape)
                                   : MutableTensorView(data, dtype, shape, strides);
}

std::string kind_of(const nb::object& array) {
  return nb::cast<std::string>(array.attr("dtype").attr("kind"));
}

nb::object numbers_of_lists(std::string_view name, nb::handle lists) {
  const nb::object array = numpy_of_lists(name, lists);
  if (std::string_view("bfiu").find(kind_of(array)) == std::string_view::npos)
    fail_type(name, " has lists of other things than numbers; nested lists of numbers are expected");
  return array;
}

// Nested lists of numbers as an array: bool where all are True or False, else f32.
nb::object array_of_lists(std::string_view name, nb::handle lists) {
  using namespace nb::literals;
  const nb::object array = numbers_of_lists(name, lists);
  if (kind_of(array) == "b") return array;
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object finite = numpy.attr("isfinite")(array), sizes = numpy.attr("abs")(array);
  const auto largest = nb::cast<double>(numpy.attr("max")(sizes, "where"_a = finite, "initial"_a = 0));
  constexpr double kRoundsToInfinity = 0x1.ffffffp+127;
  if (largest >= kRoundsToInfinity)
    fail(name, " has lists with the number ", largest,
         ", which float32 cannot hold; smaller numbers or a float64 array are expected");
  return array.attr("astype")("float32");
}

}  // namespace

nb::object numpy_of_lists(std::string_view name, nb::handle lists) {
  nb::object array;
  try {
    array = nb::module_::import_("numpy").attr("asarray")(lists);
  } catch (const nb::python_error&) {
    fail(name, " has lists of different lengths; nested lists with the shape of an array are expected");
  }
  if (nb::isinstance<nb::list>(lists) || nb::isinstance<nb::tuple>(lists))
    refuse_masked_parts(name, lists, nb::cast<std::size_t>(array.attr("ndim")));
  return array;
}

nb::object array_of_numbers(std::string_view name, nb::handle lists) {
  return numbers_of_lists(name, lists).attr("astype")("float64");
}

nb::object array_of_whole_numbers(std::string_view name, nb::handle lists) {
  const nb::object array = numpy_of_lists(name, lists);
  const std::string kind = kind_of(array);
  if (std::string_view("bfiu").find(kind) == std::string_view::npos)
    fail_type(name,
              " has other things than numbers, or numbers of more than 64 bits; whole numbers are expected");
  const bool is_empty = nb::cast<std::int64_t>(array.attr("size")) == 0;
  const bool fits =
      kind == "i" ||
      (kind == "u" && (is_empty || nb::cast<bool>(array.attr("max")() <=
                                                  nb::int_(std::numeric_limits<std::int64_t>::max()))));
  if (!is_empty && !fits)
    fail(name, " has numbers that are not whole, or too large; whole numbers are expected");
  return array.attr("astype")("int64");
}

const dlpack::Exchange* exchange_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;
  const auto* table =
      static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  const bool usable = table->header.version.major == dlpack::kMajor && table->tensor_from_object != nullptr &&
                      table->managed_to_object != nullptr;
  return usable ? table : nullptr;
}

const TypeInfo& array_type(nb::handle object) {
  static std::deque<TypeInfo> known;  // references stay valid; there are only a few types
  const nb::handle type = object.type();
  for (const TypeInfo& info : known)
    if (info.type.is(type)) return info;
  return known.emplace_back(examine(object));
}

bool is_array(nb::handle object) {
  const TypeInfo& info = array_type(object);
  return info.has_buffer || info.has_dlpack;
}

Borrowed::Borrowed(std::string_view name, nb::handle object, Purpose purpose) {
  const TypeInfo& info = array_type(object);
  const bool writable = purpose == Purpose::write;
  if (info.has_mask) refuse_masked(name, object);
  if (info.has_buffer) {
    read_buffer(name, object, writable);
    return;
  }
  if (purpose == Purpose::read && (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object))) {
    read_buffer(name, array_of_lists(name, object), false);
    return;
  }
  if (!info.has_dlpack)
    fail_type(name, " is a ", nb::cast<std::string>(nb::str(object.type().attr("__name__"))),
              "; an array that supports DLPack or the buffer protocol (NumPy, PyTorch, JAX) is expected");
  const nb::object array = info.is_torch
                               ? readable_tensor(name, object, info.is_usual_torch, purpose != Purpose::read)
                               : nb::borrow(object);
  owner_ = array;
  if (info.exchange != nullptr)
    read_exchange(name, *info.exchange);
  else
    read_capsule(name, writable);
  if (!info.is_torch) return;
  check_storage(name, array, view_);
  if (purpose == Purpose::read) return;
  tensor_ = nb::borrow(object);
  name_ = name;
  if (writable) count_change();
}

void Borrowed::check_memory() const {
  if (!tensor_.is_valid()) return;
  const Borrowed now(name_, tensor_, Purpose::keep);
  const TensorView &before = view_, &after = now.view_;
  if (after.data() != before.data() || after.shape() != before.shape() || after.strides() != before.strides())
    fail(name_,
         " has other memory than when it was given; a tensor that is not resized, moved or replaced is "
         "expected");
}

void Borrowed::count_change() const {
  if (tensor_.is_valid()) count_change_of(tensor_);
}

Borrowed::Borrowed(Borrowed&& other) noexcept
    : view_(other.view_),
      owner_(std::move(other.owner_)),
      tensor_(std::move(other.tensor_)),
      name_(std::move(other.name_)),
      buffer_(other.buffer_),
      holds_buffer_(std::exchange(other.holds_buffer_, false)) {}

Borrowed::~Borrowed() {
  if (holds_buffer_) PyBuffer_Release(&buffer_);
}

void Borrowed::read_buffer(std::string_view name, nb::handle object, bool writable) {
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  std::optional<DType> dtype;
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
    const nb::object bits = bits_of_bfloat16(object);
    if (!bits.is_valid()) refuse_buffer(name, object, writable);
    PyErr_Clear();
    if (PyObject_GetBuffer(bits.ptr(), &buffer_, flags) != 0) refuse_buffer(name, object, writable);
    dtype = DType::bf16;
  }
  holds_buffer_ = true;
  try {
    const char* const format = buffer_.format == nullptr ? "" : buffer_.format;
    if (!dtype) dtype = dtype_of_format(format);
    const auto width = buffer_.itemsize;
    if (!dtype || static_cast<std::size_t>(width) != size_of(*dtype)) refuse_dtype(name, object, format);
    check_rank(name, buffer_.ndim);
    Dims shape;
    Dims strides;
    Py_ssize_t contiguous = buffer_.len;  // the stride of arrays that give none, as those of ctypes
    for (int axis = 0; axis < buffer_.ndim; ++axis) {
      const Py_ssize_t size = buffer_.shape[axis];
      contiguous /= std::max<Py_ssize_t>(1, size);
      const Py_ssize_t stride = buffer_.strides == nullptr ? contiguous : buffer_.strides[axis];
      if (stride % width != 0 && size > 1)
        fail(name, " has a stride of ", stride, " bytes; a multiple of its elements' ", width,
             " is expected");
      shape.push_back(size);
      strides.push_back(stride / width);
    }
    view_ = view_of(buffer_.buf, *dtype, shape, strides);
  } catch (...) {
    PyBuffer_Release(&buffer_);
    holds_buffer_ = false;
    throw;
  }
}

void Borrowed::read_dlpack(std::string_view name, const dlpack::Tensor& tensor) {
  if (tensor.device.type != dlpack::kCpu)
    fail(name, " is in memory of another device (DLPack type ", tensor.device.type,
         "); CPU memory is expected");
  const std::optional<DType> dtype = dtype_of_code(tensor.dtype);
  if (!dtype) refuse_dtype(name, owner_);
  check_rank(name, tensor.rank);
  const auto rank = static_cast<std::size_t>(tensor.rank);
  const Dims shape(std::span<const std::int64_t>(tensor.shape, rank));
  if (tensor.data == nullptr && element_count(shape) != 0)
    fail(name,
         " has no memory, because its storage was cut or its numbers are computed on reading; an array in "
         "memory is expected");
  void* data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view_ = tensor.strides == nullptr
              ? MutableTensorView(data, *dtype, shape)
              : view_of(data, *dtype, shape, Dims(std::span<const std::int64_t>(tensor.strides, rank)));
}

void Borrowed::read_exchange(std::string_view name, const dlpack::Exchange& exchange) {
  dlpack::Tensor tensor;
  if (exchange.tensor_from_object(owner_.ptr(), &tensor) != 0) {
    nb::python_error why;
    (void)readable_tensor(name, owner_, false, true);  // gives a specific message for most kinds
    why.restore();
    refuse_unreadable(name, "read");
  }
  read_dlpack(name, tensor);
}

void Borrowed::read_capsule(std::string_view name, bool writable) {
  const nb::object capsule = owner_.attr("__dlpack__")();
  const auto* plain = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (plain != nullptr) {
    read_dlpack(name, plain->tensor);
  } else {
    PyErr_Clear();
    const auto* versioned =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (versioned == nullptr) refuse_unreadable(name, "read");
    if (writable && (versioned->flags & dlpack::kReadOnly) != 0)
      fail(name, " is read-only; a writable array is expected");
    read_dlpack(name, versioned->tensor);
  }
  owner_ = nb::make_tuple(owner_, capsule);
}

}  // namespace heed::python
