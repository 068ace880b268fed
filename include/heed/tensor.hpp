// Tensors: non-owning views, and Tensor, which owns aligned memory.
//
// Sizes and strides are std::int64_t and count elements, never bytes. Every product of sizes is checked for
// overflow, which throws Error (out_of_memory).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "heed/dtype.hpp"
#include "heed/export.hpp"

namespace heed {

/// The largest number of axes.
inline constexpr int kMaxRank = 5;

/// Up to kMaxRank numbers, one per axis: a shape or strides. Does not allocate memory.
class HEED_API Dims {
 public:
  Dims() = default;
  /// Throws invalid_argument for more than kMaxRank numbers.
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values);

  [[nodiscard]] int size() const noexcept { return size_; }
  std::int64_t& operator[](int axis) noexcept { return values_[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](int axis) const noexcept { return values_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] std::int64_t back() const noexcept { return (*this)[size_ - 1]; }
  void push_back(std::int64_t value);
  [[nodiscard]] const std::int64_t* begin() const noexcept { return values_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return values_.data() + size_; }
  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int size_ = 0;
};

/// "[2, 3, 24]".
HEED_API std::string to_string(const Dims& dims);
/// Product of the sizes (1 for rank 0). Throws invalid_argument for a negative size, out_of_memory on
/// overflow.
HEED_API std::int64_t element_count(const Dims& shape);
/// Row-major strides: the last axis has stride 1.
HEED_API Dims contiguous_strides(const Dims& shape);

/// A strided view of memory owned elsewhere. Strides may be 0 (a repeated axis) or negative. `Void` is `const
/// void` for a read-only view (TensorView) and `void` for a writable one (MutableTensorView).
template <class Void>
class HEED_API BasicTensorView {
  static_assert(std::is_void_v<Void>);
  template <class T>
  using Qualified = std::conditional_t<std::is_const_v<Void>, const T, T>;

 public:
  /// An empty view: shape [0], no data.
  BasicTensorView() = default;
  /// Row-major data.
  BasicTensorView(Void* data, DType dtype, const Dims& shape);
  /// `data` points at element (0, …, 0). Throws if shape and strides differ in length.
  BasicTensorView(Void* data, DType dtype, const Dims& shape, const Dims& strides);
  template <class T>
  requires requires { dtype_of<std::remove_const_t<T>>::value; }
  BasicTensorView(T* data, const Dims& shape)
      : BasicTensorView(static_cast<Void*>(data), dtype_of_v<std::remove_const_t<T>>, shape) {}
  template <class T>
  requires requires { dtype_of<std::remove_const_t<T>>::value; }
  BasicTensorView(T* data, const Dims& shape, const Dims& strides)
      : BasicTensorView(static_cast<Void*>(data), dtype_of_v<std::remove_const_t<T>>, shape, strides) {}
  /// A writable view converts to a read-only one.
  operator BasicTensorView<const void>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Void>) {
    return {data_, dtype_, shape_, strides_};
  }

  [[nodiscard]] Void* data() const noexcept { return data_; }
  /// Typed pointer to element (0, …, 0). Throws invalid_argument if T is not the view's dtype.
  template <class T>
  [[nodiscard]] Qualified<T>* data_as() const {
    require_dtype(dtype_of_v<T>);
    return static_cast<Qualified<T>*>(data_);
  }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Dims& shape() const noexcept { return shape_; }
  [[nodiscard]] const Dims& strides() const noexcept { return strides_; }
  [[nodiscard]] int rank() const noexcept { return shape_.size(); }
  /// Size of an axis; negative axes count from the end. Throws if the axis is out of range.
  [[nodiscard]] std::int64_t size(int axis) const;
  [[nodiscard]] std::int64_t count() const { return element_count(shape_); }
  [[nodiscard]] bool is_contiguous() const noexcept;

  /// Checked access to one element. Throws if the dtype, the number of indices or an index is wrong.
  template <class T, class... Index>
  [[nodiscard]] Qualified<T>& at(Index... index) const {
    return data_as<T>()[offset_of({static_cast<std::int64_t>(index)...})];
  }

  /// Each returns a view of the same memory. Throws invalid_argument if an axis or index is out of range.
  [[nodiscard]] BasicTensorView select(int axis, std::int64_t index) const;  ///< removes the axis
  [[nodiscard]] BasicTensorView narrow(int axis, std::int64_t begin, std::int64_t length) const;
  [[nodiscard]] BasicTensorView transpose(int axis_a, int axis_b) const;
  [[nodiscard]] BasicTensorView permute(std::initializer_list<int> axes) const;
  [[nodiscard]] BasicTensorView unsqueeze(int axis) const;  ///< a new axis of size 1 before `axis`
  [[nodiscard]] BasicTensorView expand(
      const Dims& shape) const;  ///< NumPy broadcasting; new axes have stride 0
  /// Keeps the row-major order of the elements. Throws if the strides would require a copy.
  [[nodiscard]] BasicTensorView reshape(const Dims& shape) const;

 private:
  [[nodiscard]] std::int64_t offset_of(std::initializer_list<std::int64_t> index) const;
  [[nodiscard]] int checked_axis(int axis, int limit) const;
  void require_dtype(DType wanted) const;

  Void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Dims shape_{0};
  Dims strides_{1};
};

/// A read-only view.
using TensorView = BasicTensorView<const void>;
/// A writable view.
using MutableTensorView = BasicTensorView<void>;
extern template class BasicTensorView<const void>;
extern template class BasicTensorView<void>;

/// Owns row-major memory aligned to 64 bytes. Copying copies the elements; moving leaves an empty tensor.
class HEED_API Tensor {
 public:
  /// Shape [0], f32.
  Tensor() = default;
  /// Zeros. Throws invalid_argument for a negative size, out_of_memory if the allocation fails.
  explicit Tensor(const Dims& shape, DType dtype = DType::f32);
  /// A tensor with uninitialised elements, for a caller that writes all of them.
  [[nodiscard]] static Tensor uninitialized(const Dims& shape, DType dtype);
  /// A row-major copy of the view, in its own dtype or converted to `dtype` (see copy()).
  [[nodiscard]] static Tensor copy_of(const TensorView& view);
  [[nodiscard]] static Tensor copy_of(const TensorView& view, DType dtype);
  /// A tensor of `values` in row-major order. Throws if their number does not fit the shape.
  template <class T>
  [[nodiscard]] static Tensor from(std::initializer_list<T> values, const Dims& shape) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  template <class T>
  [[nodiscard]] static Tensor from(std::span<const T> values, const Dims& shape) {
    return from_bytes(std::as_bytes(values), dtype_of_v<std::remove_const_t<T>>, shape);
  }

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() = default;

  operator TensorView() const { return view(); }           // NOLINT(google-explicit-constructor)
  operator MutableTensorView() { return mutable_view(); }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] TensorView view() const { return {memory_.get(), dtype_, shape_}; }
  [[nodiscard]] MutableTensorView mutable_view() { return {memory_.get(), dtype_, shape_}; }

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Dims& shape() const noexcept { return shape_; }
  [[nodiscard]] int rank() const noexcept { return shape_.size(); }
  [[nodiscard]] std::int64_t size(int axis) const { return view().size(axis); }
  [[nodiscard]] std::int64_t count() const { return element_count(shape_); }
  /// All elements in row-major order. Throws invalid_argument if T is not the tensor's dtype. Deleted for
  /// temporaries: `for (float x : attention(q, k, v).output.values<float>())` would read freed memory.
  template <class T>
  [[nodiscard]] std::span<const T> values() const& {
    return {view().data_as<T>(), static_cast<std::size_t>(count())};
  }
  template <class T>
  [[nodiscard]] std::span<T> values() & {
    return {mutable_view().data_as<T>(), static_cast<std::size_t>(count())};
  }
  template <class T>
  std::span<const T> values() const&& = delete;
  template <class T, class... Index>
  [[nodiscard]] const T& at(Index... index) const {
    return view().at<T>(index...);
  }
  template <class T, class... Index>
  [[nodiscard]] T& at(Index... index) {
    return mutable_view().at<T>(index...);
  }
  /// The same elements under another shape. Throws if the counts differ.
  [[nodiscard]] Tensor reshaped(const Dims& shape) &&;

 private:
  struct Free {
    std::size_t bytes;  // size of the block, which may exceed the tensor's
    void operator()(std::byte* memory) const noexcept;
  };
  [[nodiscard]] static Tensor from_bytes(std::span<const std::byte> bytes, DType dtype, const Dims& shape);

  std::unique_ptr<std::byte[], Free> memory_;
  DType dtype_ = DType::f32;
  Dims shape_{0};
};

/// Copies element by element into a view of the same shape and converts between dtypes. To a float: rounds to
/// nearest. From a float to an integer: truncates, clamps values out of range, and maps NaN to 0. To bool:
/// true if not zero. Throws if the shapes differ.
HEED_API void copy(const TensorView& from, const MutableTensorView& to);

}  // namespace heed
