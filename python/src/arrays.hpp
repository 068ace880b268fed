// Conversion between Python arrays and heed tensors, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string_view>

#include "dlpack.hpp"
#include "heed/tensor.hpp"

namespace heed::python {

namespace nb = nanobind;

/// The array library of results.
enum class Kind : std::uint8_t { numpy, torch, jax };

/// The protocols that a Python type supports, and the array library of its results.
struct TypeInfo {
  nb::handle type;
  Kind kind = Kind::numpy;
  bool has_buffer = false;
  bool has_dlpack = false;
  bool has_mask = false;        ///< numpy.ma.MaskedArray or a subclass
  bool is_torch = false;        ///< torch.Tensor or a subclass
  bool is_usual_torch = false;  ///< torch.Tensor itself
  const dlpack::Exchange* exchange = nullptr;
};

/// The table of C functions of a tensor's type; nullptr if it has none of this version.
const dlpack::Exchange* exchange_of(nb::handle type);

/// The TypeInfo of an object's type, determined once per type.
const TypeInfo& array_type(nb::handle object);

/// Whether an object supports the buffer protocol or DLPack.
bool is_array(nb::handle object);

/// Nested lists as an array of the dtype that NumPy finds for them. Throws Error if their lengths differ.
nb::object numpy_of_lists(std::string_view name, nb::handle lists);
/// Nested lists of numbers as an array of float64.
nb::object array_of_numbers(std::string_view name, nb::handle lists);
/// Nested lists of whole numbers as an array of int64. Throws Error for other numbers.
nb::object array_of_whole_numbers(std::string_view name, nb::handle lists);

/// Use of borrowed memory: reading during this call, a view for as long as its owner lives, or writing.
enum class Purpose : std::uint8_t { read, keep, write };

/// A view of a Python object's memory, which it keeps alive and unchanged in size during its lifetime. Nested
/// lists that are only read become an array. Throws TypeError if the object is no array, Error
/// (invalid_argument) if it cannot be read in place.
class Borrowed {
 public:
  Borrowed(std::string_view name, nb::handle object, Purpose purpose = Purpose::read);
  Borrowed(Borrowed&& other) noexcept;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Borrowed& operator=(Borrowed&&) = delete;
  ~Borrowed();

  /// Throws if a PyTorch tensor has other memory by now, as after resize_() or an assignment to its data.
  void check_memory() const;
  /// Tells PyTorch that the tensor's numbers change, as its own functions do, so that autograd uses no
  /// others.
  void count_change() const;

  [[nodiscard]] TensorView view() const { return view_; }
  [[nodiscard]] MutableTensorView mutable_view() const { return view_; }

 private:
  void read_buffer(std::string_view name, nb::handle object, bool writable);
  void read_dlpack(std::string_view name, const dlpack::Tensor& tensor);
  void read_exchange(std::string_view name, const dlpack::Exchange& exchange);
  void read_capsule(std::string_view name, bool writable);

  MutableTensorView view_;
  nb::object owner_;
  nb::object tensor_;  // of PyTorch, if it is kept or written
  std::string name_;   // likewise
  Py_buffer buffer_{};
  bool holds_buffer_ = false;
};

/// Converts a tensor to an array of the given library. The array owns the memory. JAX's from_dlpack may copy
/// it.
nb::object to_python(Tensor&& tensor, Kind kind);
/// A NumPy array over memory of `owner`, which it keeps alive.
nb::object numpy_view(const MutableTensorView& view, nb::handle owner);

/// Defines the class Memory, through which NumPy and others access heed's results.
void define_memory(nb::module_& module);

}  // namespace heed::python
