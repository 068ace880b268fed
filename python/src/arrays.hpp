// Arrays of Python as tensors of heed, and back, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string_view>

#include "dlpack.hpp"
#include "heed/tensor.hpp"

namespace heed::python {

namespace nb = nanobind;

/// What results are given back as.
enum class Kind : std::uint8_t { numpy, torch, jax };

/// How objects of a type are read, and what stands for their kind.
struct TypeInfo {
  nb::handle type;
  Kind kind = Kind::numpy;
  bool has_buffer = false;
  bool has_dlpack = false;
  bool is_torch = false;        ///< torch.Tensor or a subclass
  bool is_usual_torch = false;  ///< torch.Tensor itself
  const dlpack::Exchange* exchange = nullptr;
};

/// The table of C functions that a tensor's type offers, or nullptr where there is none of this version.
const dlpack::Exchange* exchange_of(nb::handle type);

/// What is known of an object's type; looked up once a type.
const TypeInfo& array_type(nb::handle object);

/// Whether an object speaks the buffer protocol or DLPack.
bool is_array(nb::handle object);

/// What memory is borrowed for: to be read by this call, to be seen for as long as a view of it lives, or to
/// be written.
enum class Purpose : std::uint8_t { read, keep, write };

/// The memory of a Python object as a view, kept alive and unchanged in size until this ends. Throws
/// TypeError where the object is no array, and Error (invalid_argument) where it cannot be read in place.
class Borrowed {
 public:
  Borrowed(std::string_view name, nb::handle object, Purpose purpose = Purpose::read);
  Borrowed(Borrowed&& other) noexcept;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Borrowed& operator=(Borrowed&&) = delete;
  ~Borrowed();

  [[nodiscard]] TensorView view() const { return view_; }
  [[nodiscard]] MutableTensorView mutable_view() const { return view_; }

 private:
  void read_buffer(std::string_view name, nb::handle object, bool writable);
  void read_dlpack(std::string_view name, const dlpack::Tensor& tensor);
  void read_exchange(std::string_view name, const dlpack::Exchange& exchange);
  void read_capsule(std::string_view name, bool writable);

  MutableTensorView view_;
  nb::object owner_;
  Py_buffer buffer_{};
  bool holds_buffer_ = false;
};

/// A tensor as an array of that kind. The array owns the memory; for JAX, which may copy, see its
/// from_dlpack.
nb::object to_python(Tensor&& tensor, Kind kind);
/// A NumPy array that shows memory of `owner`, and keeps it alive.
nb::object numpy_view(const MutableTensorView& view, nb::handle owner);

/// Adds the class Memory, through which NumPy and others reach what heed computed.
void define_memory(nb::module_& module);

}  // namespace heed::python
